#include "tests/ops/reference_tokens.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace nearmetal {
namespace {

// Mean and biased variance over the channels of the token of one sample at this place in a plane.
Moments token_moments(const BatchTensor& x, int64_t place) {
  Moments moments{0, 0, static_cast<double>(x.shape.channels)};
  for (int64_t c = 0; c < x.shape.channels; ++c) moments.mean += x.plane(c)[place] / moments.count;
  for (int64_t c = 0; c < x.shape.channels; ++c) {
    moments.variance += std::pow(x.plane(c)[place] - moments.mean, 2) / moments.count;
  }
  return moments;
}

// One head of one sample: q, k and v by token and feature, and the softmax of each row of scores.
class Head {
 public:
  Head(const BatchTensor& packed, int64_t heads, int64_t head, int64_t sample)
      : packed_(packed),
        features_(packed.shape.channels / 3 / heads),
        first_(head * features_),
        sample_(sample) {
    for (int64_t row = 0; row < tokens(); ++row) add_row(row);
  }

  int64_t tokens() const { return packed_.shape.tokens(); }
  int64_t features() const { return features_; }
  double factor() const { return 1 / std::sqrt(static_cast<double>(features_)); }
  double probability(int64_t row, int64_t column) const {
    return probabilities_[row * tokens() + column];
  }
  // A feature of part 0 (q), 1 (k), 2 (v): its channel, and its value.
  int64_t channel(int part, int64_t feature) const {
    return part * packed_.shape.channels / 3 + first_ + feature;
  }
  int64_t place(int64_t token) const { return token * packed_.batch + sample_; }
  double at(int part, int64_t token, int64_t feature) const {
    return packed_.plane(channel(part, feature))[place(token)];
  }

 private:
  void add_row(int64_t row) {
    std::vector<double> scores(tokens());
    for (int64_t column = 0; column < tokens(); ++column) {
      for (int64_t f = 0; f < features_; ++f) {
        scores[column] += factor() * at(0, row, f) * at(1, column, f);
      }
    }
    const double largest = *std::ranges::max_element(scores);
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - largest);
    for (const double score : scores) probabilities_.push_back(score / sum);
  }

  const BatchTensor& packed_;
  int64_t features_, first_, sample_;
  std::vector<double> probabilities_;
};

template <class Body>
void for_each_head(const BatchTensor& packed, int64_t heads, Body body) {
  parallel_for(heads * packed.batch,
               [&](int64_t i) { body(Head(packed, heads, i / packed.batch, i % packed.batch)); });
}

// Gradients of q, k and v of one head.
void add_head_gradient(const Head& head, const BatchTensor& dy, BatchTensor& gradient) {
  const auto target = [&](int part, int64_t token, int64_t feature) -> double& {
    return gradient.plane(head.channel(part, feature))[head.place(token)];
  };
  const auto incoming = [&](int64_t token, int64_t feature) {
    return dy.plane(head.channel(0, feature))[head.place(token)];
  };
  for (int64_t row = 0; row < head.tokens(); ++row) {
    std::vector<double> of_probability(head.tokens());
    double mean = 0;
    for (int64_t column = 0; column < head.tokens(); ++column) {
      for (int64_t f = 0; f < head.features(); ++f) {
        of_probability[column] += incoming(row, f) * head.at(2, column, f);
        target(2, column, f) += incoming(row, f) * head.probability(row, column);
      }
      mean += of_probability[column] * head.probability(row, column);
    }
    for (int64_t column = 0; column < head.tokens(); ++column) {
      const double of_score =
          head.factor() * head.probability(row, column) * (of_probability[column] - mean);
      for (int64_t f = 0; f < head.features(); ++f) {
        target(0, row, f) += of_score * head.at(1, column, f);
        target(1, column, f) += of_score * head.at(0, row, f);
      }
    }
  }
}

}  // namespace

BatchTensor layer_norm(const BatchTensor& x, Values scale, Values bias, double epsilon) {
  BatchTensor y(x.batch, x.shape);
  for (int64_t place = 0; place < x.plane_size(); ++place) {
    const Moments moments = token_moments(x, place);
    const double inverse = 1 / std::sqrt(moments.variance + epsilon);
    for (int64_t c = 0; c < x.shape.channels; ++c) {
      y.plane(c)[place] = (x.plane(c)[place] - moments.mean) * inverse * scale[c] + bias[c];
    }
  }
  return y;
}

LayerNormGradients layer_norm_gradients(const BatchTensor& x, Values scale, double epsilon,
                                        const BatchTensor& dy) {
  const int64_t channels = x.shape.channels;
  LayerNormGradients gradients{BatchTensor(x.batch, x.shape), std::vector<double>(channels),
                               std::vector<double>(channels)};
  for (int64_t place = 0; place < x.plane_size(); ++place) {
    const Moments moments = token_moments(x, place);
    const double inverse = 1 / std::sqrt(moments.variance + epsilon);
    double sum = 0, product = 0;  // of the gradient before scale and bias
    const auto normalised = [&](int64_t c) { return (x.plane(c)[place] - moments.mean) * inverse; };
    for (int64_t c = 0; c < channels; ++c) {
      const double gradient = dy.plane(c)[place];
      gradients.bias[c] += gradient;
      gradients.scale[c] += gradient * normalised(c);
      sum += gradient * scale[c];
      product += gradient * scale[c] * normalised(c);
    }
    for (int64_t c = 0; c < channels; ++c) {
      gradients.input.plane(c)[place] = inverse * (dy.plane(c)[place] * scale[c] -
                                                   (sum + normalised(c) * product) / moments.count);
    }
  }
  return gradients;
}

BatchTensor gelu(const BatchTensor& x) {
  BatchTensor y = x;
  for (double& value : y.values) value *= (1 + std::erf(value / std::numbers::sqrt2)) / 2;
  return y;
}

BatchTensor gelu_gradient(const BatchTensor& x, const BatchTensor& dy) {
  BatchTensor dx = dy;
  for (size_t i = 0; i < dx.values.size(); ++i) {
    const double value = x.values[i];
    const double below = (1 + std::erf(value / std::numbers::sqrt2)) / 2;
    const double density = std::exp(-value * value / 2) / std::sqrt(2 * std::numbers::pi);
    dx.values[i] *= below + value * density;
  }
  return dx;
}

BatchTensor attention(const BatchTensor& packed, int64_t heads) {
  Shape shape = packed.shape;
  shape.channels /= 3;
  BatchTensor y(packed.batch, shape);
  for_each_head(packed, heads, [&](const Head& head) {
    for (int64_t row = 0; row < head.tokens(); ++row) {
      for (int64_t column = 0; column < head.tokens(); ++column) {
        for (int64_t f = 0; f < head.features(); ++f) {
          y.plane(head.channel(0, f))[head.place(row)] +=
              head.probability(row, column) * head.at(2, column, f);
        }
      }
    }
  });
  return y;
}

BatchTensor attention_gradient(const BatchTensor& packed, int64_t heads, const BatchTensor& dy) {
  BatchTensor gradient(packed.batch, packed.shape);
  for_each_head(packed, heads, [&](const Head& head) { add_head_gradient(head, dy, gradient); });
  return gradient;
}

BatchTensor prepend_token(const BatchTensor& x, Values token) {
  BatchTensor y(x.batch, {x.shape.channels, 1 + x.shape.tokens()});
  for (int64_t c = 0; c < x.shape.channels; ++c) {
    std::fill_n(y.plane(c), x.batch, token[c]);
    std::copy_n(x.plane(c), x.plane_size(), y.plane(c) + x.batch);
  }
  return y;
}

PrependedGradients prepend_token_gradients(const BatchTensor& dy, Shape input) {
  PrependedGradients gradients{BatchTensor(dy.batch, input), std::vector<double>(input.channels)};
  for (int64_t c = 0; c < input.channels; ++c) {
    for (int64_t sample = 0; sample < dy.batch; ++sample) gradients.token[c] += dy.plane(c)[sample];
    std::copy_n(dy.plane(c) + dy.batch, gradients.input.plane_size(), gradients.input.plane(c));
  }
  return gradients;
}

BatchTensor add_positions(const BatchTensor& x, Values positions) {
  BatchTensor y = x;
  for (int64_t c = 0; c < x.shape.channels; ++c) {
    for (int64_t i = 0; i < x.plane_size(); ++i) {
      y.plane(c)[i] += positions[i / x.batch * x.shape.channels + c];
    }
  }
  return y;
}

std::vector<double> positions_gradient(const BatchTensor& dy) {
  std::vector<double> gradient(dy.shape.elements());
  for (int64_t c = 0; c < dy.shape.channels; ++c) {
    for (int64_t i = 0; i < dy.plane_size(); ++i) {
      gradient[i / dy.batch * dy.shape.channels + c] += dy.plane(c)[i];
    }
  }
  return gradient;
}

BatchTensor token_ids(std::span<const int32_t> ids, int64_t batch) {
  const int64_t tokens = std::ssize(ids) / batch;
  BatchTensor y(batch, {1, tokens});
  for (int64_t i = 0; i < std::ssize(ids); ++i) y.values[i % tokens * batch + i / tokens] = ids[i];
  return y;
}

namespace {

// The row of a table that the token at this place of a plane reads.
int64_t row_of(int table, const BatchTensor& ids, int64_t place) {
  if (table == 0) return static_cast<int64_t>(ids.values[place]);
  return table == 1 ? place / ids.batch : 0;
}

}  // namespace

BatchTensor embedding(const BatchTensor& ids, Shape output, Values words, Values positions,
                      Values types) {
  BatchTensor y(ids.batch, output);
  const Values tables[] = {words, positions, types};
  for (int64_t c = 0; c < output.channels; ++c) {
    for (int64_t place = 0; place < y.plane_size(); ++place) {
      for (int table = 0; table < 3; ++table) {
        y.plane(c)[place] += tables[table][row_of(table, ids, place) * output.channels + c];
      }
    }
  }
  return y;
}

std::vector<double> embedding_gradient(int table, const BatchTensor& ids, const BatchTensor& dy,
                                       size_t elements) {
  const int64_t channels = dy.shape.channels;
  std::vector<double> gradient(elements);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t place = 0; place < dy.plane_size(); ++place) {
      gradient[row_of(table, ids, place) * channels + c] += dy.plane(c)[place];
    }
  }
  return gradient;
}

namespace {

// As logits of so many classes as there are tokens: those of the starts of all samples, then of
// their ends.
BatchTensor as_classes(const BatchTensor& logits) {
  const int64_t batch = logits.batch;
  BatchTensor classes(2 * batch, {logits.shape.tokens()});
  for (int64_t end = 0; end < 2; ++end) {
    for (int64_t place = 0; place < logits.plane_size(); ++place) {
      classes.plane(place / batch)[end * batch + place % batch] = logits.plane(end)[place];
    }
  }
  return classes;
}

std::vector<int32_t> starts_then_ends(std::span<const int32_t> labels) {
  std::vector<int32_t> ordered;
  for (const size_t end : {0, 1}) {
    for (size_t i = end; i < labels.size(); i += 2) ordered.push_back(labels[i]);
  }
  return ordered;
}

}  // namespace

double span_loss(const BatchTensor& logits, std::span<const int32_t> labels) {
  return softmax_cross_entropy(as_classes(logits), starts_then_ends(labels));
}

BatchTensor span_loss_gradient(const BatchTensor& logits, std::span<const int32_t> labels) {
  const BatchTensor of_classes =
      softmax_cross_entropy_gradient(as_classes(logits), starts_then_ends(labels));
  const int64_t batch = logits.batch;
  BatchTensor gradient(batch, logits.shape);
  for (int64_t end = 0; end < 2; ++end) {
    for (int64_t place = 0; place < logits.plane_size(); ++place) {
      gradient.plane(end)[place] = of_classes.plane(place / batch)[end * batch + place % batch];
    }
  }
  return gradient;
}

BatchTensor first_token(const BatchTensor& x) {
  BatchTensor y(x.batch, {x.shape.channels});
  for (int64_t c = 0; c < x.shape.channels; ++c) std::copy_n(x.plane(c), x.batch, y.plane(c));
  return y;
}

BatchTensor first_token_gradient(const BatchTensor& dy, Shape input) {
  BatchTensor dx(dy.batch, input);
  for (int64_t c = 0; c < input.channels; ++c) std::copy_n(dy.plane(c), dy.batch, dx.plane(c));
  return dx;
}

}  // namespace nearmetal
