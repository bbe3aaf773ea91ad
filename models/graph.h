// The model as data: nodes in execution order, their shapes, and their parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/names.h"
#include "models/shapes.h"

namespace nearmetal {

enum class OpKind {
  input,
  token_ids,
  embedding,
  conv,
  batch_norm,
  layer_norm,
  relu,
  gelu,
  add,
  token_linear,
  attention,
  class_token,
  positions,
  select_token,
  max_pool,
  global_average_pool,
  linear,
  softmax_cross_entropy,
  span_loss,
  boundary,
};

constexpr auto names_of(OpKind) {
  return std::array{"input",      "token_ids",
                    "embedding",  "conv",
                    "batch_norm", "layer_norm",
                    "relu",       "gelu",
                    "add",        "token_linear",
                    "attention",  "class_token",
                    "positions",  "select_token",
                    "max_pool",   "global_average_pool",
                    "linear",     "softmax_cross_entropy",
                    "span_loss",  "boundary"};
}

/// Whether such a node ends a graph that is trained: it reads logits, and labels.
constexpr bool is_loss(OpKind op) {
  return op == OpKind::softmax_cross_entropy || op == OpKind::span_loss;
}

/// initial_parameters() says what each is.
enum class Initialiser {
  he_normal,
  lecun_normal,
  normal_0_02,
  normal_1e_6,
  one,
  uniform_fan_in,
  uniform_fan_in_whole,
  xavier_uniform,
  zero,
};

enum class Bias { absent, present };

/// How the weight and the bias of a product of tokens start.
struct TokenLinearStart {
  Initialiser weight = Initialiser::xavier_uniform;
  Initialiser bias = Initialiser::zero;
};

/// A trained tensor. Canonical layout: that of torchvision (convolution weights OIHW), fp32, all
/// parameters behind one another in graph order. Programs convert to the layout of their device.
struct Parameter {
  std::string name;  // torchvision's or Hugging Face's, e.g. "layer1.0.conv1.weight"
  std::vector<int64_t> dims;
  Initialiser initialiser = Initialiser::zero;
  int64_t fan = 0;                      // of the initialiser: outputs or inputs per value, or both
  bool scales_residual_branch = false;  // last batch norm of a block; may start at zero
  int64_t offset = 0;                   // in elements, canonical layout
  int64_t size = 0;
  // Where it is packed of several equal ones, row behind row: their names, which files have.
  std::vector<std::string> parts{};

  /// Weights of products and tables; vectors are biases and parameters of norms.
  bool is_matrix() const { return dims.size() > 1; }
};

struct Node {
  OpKind op;
  std::string name;               // torchvision's module name, e.g. "layer1.0.conv1"
  std::vector<int> inputs;        // indices of earlier nodes
  Shape shape;                    // of the output
  Window window{};                // conv and max_pool
  std::vector<int> parameters{};  // indices: weight, then bias where there is one
  int64_t heads = 0;              // attention
  double epsilon = 0;             // layer_norm
  int64_t vocabulary = 0;         // token_ids: each is below it

  bool has_bias() const { return parameters.size() > 1; }
};

/// Built node by node; every call infers the output shape, checks it and returns the node's index.
/// Throws std::invalid_argument where an image is too small or shapes do not match.
class Graph {
 public:
  explicit Graph(std::string name) : name_(std::move(name)) {}

  int input(Shape image);
  int conv(int input, const std::string& name, int64_t output_channels, Window window,
           Bias bias = Bias::absent, Initialiser initialiser = Initialiser::he_normal);
  int batch_norm(int input, const std::string& name, bool scales_residual_branch = false);
  int relu(int input, const std::string& name) {
    return append({OpKind::relu, name, {input}, nodes_.at(input).shape});
  }
  int add(int left, int right, const std::string& name);
  int max_pool(int input, const std::string& name, Window window);
  int global_average_pool(int input, const std::string& name) {
    return append({OpKind::global_average_pool, name, {input}, {nodes_.at(input).shape.channels}});
  }
  /// Reads all values of a sample. Its weight starts as that of a classifier, or, with a bias of 0,
  /// as that of a layer before a ReLU (he_normal).
  int linear(int input, const std::string& name, int64_t outputs,
             Initialiser initialiser = Initialiser::uniform_fan_in);
  int softmax_cross_entropy(int input, const std::string& name) {
    return append({OpKind::softmax_cross_entropy, name, {input}, {1}});
  }
  /// Reads {2, tokens}: for each token its logit as the start and as the end of an answer. Leaves
  /// the mean of their cross entropies over the tokens.
  int span_loss(int input, const std::string& name);
  /// The boundaries of a stage of a pipeline: it receives values from the stage before in place of
  /// images, and sends its own on in place of a loss; gradients go the other way.
  int receive(Shape value);
  int send(int input) {
    return append({OpKind::boundary, "to the stage behind", {input}, nodes_.at(input).shape});
  }

  /// Over the features of each token (Ba et al., 2016, arXiv 1607.06450), with a scale and a bias.
  int layer_norm(int input, const std::string& name, double epsilon);
  /// x times the standard normal distribution function of x (arXiv 1606.08415), by erf.
  int gelu(int input, const std::string& name) {
    return append({OpKind::gelu, name, {input}, nodes_.at(input).shape});
  }
  /// The same linear layer for each token; its weight is [outputs, features]. `joint` lies between
  /// its name and those of its parameters.
  int token_linear(int input, const std::string& name, int64_t outputs, TokenLinearStart start = {},
                   const std::string& joint = ".");
  /// softmax(q k' / sqrt(d)) v in each of `heads` heads of d features (arXiv 1706.03762). Reads
  /// {3 x features, tokens}: of each token q, k and v behind one another, in each of them head
  /// behind head; leaves {features, tokens}. Both numbers must divide.
  int attention(int input, const std::string& name, int64_t heads);
  /// {features, 1 + tokens}: a trained token of this name before all others.
  int class_token(int input, const std::string& name);
  /// Adds a trained vector to each token, another one at each place: a parameter of this name.
  int positions(int input, const std::string& name);
  /// In place of an image: {1, tokens} of ids of words.
  int token_ids(int64_t tokens, int64_t vocabulary);
  /// {features, tokens} of ids: of each the sum of its word's row, of the row of its place and of
  /// the first type, as BertEmbeddings of Hugging Face without a norm, whose names the tables have.
  /// Throws std::invalid_argument for more tokens than positions.
  int embedding(int input, const std::string& name, int64_t features, const EmbeddingRows& rows);
  /// token_linear() whose outputs are those of `parts` behind one another, which divide them:
  /// linear layers of these names.
  int packed_linear(int input, const std::string& name, int64_t outputs,
                    const std::vector<std::string>& parts, TokenLinearStart start);
  /// {features} of the first token.
  int select_token(int input, const std::string& name) {
    return append({OpKind::select_token, name, {input}, {nodes_.at(input).shape.channels}});
  }

  /// A node of another graph that reads these nodes of this one; its parameters are as there.
  int copy(const Graph& from, const Node& node, std::vector<int> inputs);

  const std::string& name() const { return name_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Node& node(int index) const { return nodes_.at(index); }
  /// The shape of the node's first input.
  const Shape& input_shape(const Node& node) const { return nodes_.at(node.inputs.at(0)).shape; }
  /// Whether there is such a node (-1: none) and it is of this kind.
  bool is(int node, OpKind op) const { return node >= 0 && nodes_[node].op == op; }
  /// Nodes that take this one's value, and the only one that does, or -1.
  const std::vector<int>& consumers(int node) const { return consumers_.at(node); }
  int sole_consumer(int node) const {
    return consumers(node).size() == 1 ? consumers(node)[0] : -1;
  }
  /// The batch norm that alone reads this convolution or linear layer; -1: none. It takes a bias
  /// away: only its running mean has it.
  int norm_behind(int product) const {
    return is(sole_consumer(product), OpKind::batch_norm) ? sole_consumer(product) : -1;
  }

  bool has_loss() const { return is_loss(nodes_.back().op); }
  /// Whether its samples are sequences of token ids, not images.
  bool reads_tokens() const { return nodes_.front().op == OpKind::token_ids; }
  /// A loss's labels: a class of each image, or start and end of a span of each sequence.
  int64_t labels_per_sample() const { return nodes_.back().op == OpKind::span_loss ? 2 : 1; }
  /// Whether it is a stage of a pipeline with one before it, and with one behind it.
  bool receives() const { return nodes_.front().op == OpKind::boundary; }
  bool sends() const { return nodes_.back().op == OpKind::boundary; }
  /// Whether it can be trained; else its last node leaves the logits.
  bool is_trainable() const { return has_loss() || sends(); }
  /// Whether the loss, and nothing else, reads this linear layer, or nothing does.
  bool are_logits(int linear) const {
    if (consumers(linear).empty()) return true;
    return sole_consumer(linear) >= 0 && is_loss(node(sole_consumer(linear)).op);
  }

  int64_t parameter_count() const {
    return parameters_.empty() ? 0 : parameters_.back().offset + parameters_.back().size;
  }
  /// Among which a label chooses: of a span the tokens.
  int64_t classes() const;
  int64_t features() const;  // read by the classifier, of one image or token
  int64_t logits_per_sample() const { return classifier().shape.elements(); }
  /// The shape of an image; for a stage, of the value that it receives; for a sequence {1, tokens}.
  const Shape& image() const { return nodes_.front().shape; }

  /// Multiplications and additions of the convolutions, the linear layers and the two products of
  /// attention, counted apart (2 per multiply-add), for one image: of attention 4 x tokens^2 x
  /// features. Training adds the gradients of the weights, or of the second factor, and, but for
  /// the layer that reads the image, of the inputs. Other operations are left out, as usual.
  double forward_flops_per_sample() const;
  double training_flops_per_sample() const;
  double forward_flops(const Node& node) const;

 private:
  int append(Node node);
  int add_parameter(std::string name, std::vector<int64_t> dims, Initialiser initialiser,
                    int64_t fan = 0);
  const Node& classifier() const;

  std::string name_;
  std::vector<Node> nodes_;
  std::vector<std::vector<int>> consumers_;  // by node
  std::vector<Parameter> parameters_;
};

/// All parameters in canonical layout, the same for a seed on every rank and device. Convolutions:
/// He normal, fan-out (arXiv 1502.01852), bias 0; linear layers before a ReLU: He normal, fan-in,
/// bias 0; classifier (uniform_fan_in): within 1/(2 sqrt(inputs)), half of PyTorch's bound, so that
/// the first losses of even a few images are near ln(classes); norms: scale 1, bias 0. As
/// torchvision's transformers start: lecun_normal of deviation 1/sqrt(inputs), normal ones of
/// deviation 0.02 and 1e-6, uniform within sqrt(6 / (inputs + outputs)) (xavier_uniform) or, as
/// PyTorch's linear layers, within 1/sqrt(inputs) (uniform_fan_in_whole).
/// `zero_last_scale` starts the last scale of each residual branch at 0 (arXiv 1706.02677).
std::vector<float> initial_parameters(const Graph& graph, uint64_t seed,
                                      bool zero_last_scale = false);

}  // namespace nearmetal
