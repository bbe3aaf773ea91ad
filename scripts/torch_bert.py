"""BERT in PyTorch with the names and shapes of Hugging Face's BertForQuestionAnswering, of which a
test shows that it computes the same: for machines that have PyTorch alone. Dropout has probability 0;
attention is scaled_dot_product_attention without a mask, as no sequence is padded."""

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, POSITIONS, TOKEN_TYPES = 30522, 512, 2
BERTS = {"bert_tiny": (2, 2, 128), "bert_base": (12, 12, 768),
         "bert_large": (24, 16, 1024)}  # layers, heads, features
DEVIATION = 0.02  # of the weights at the start


def layer_norm(features):
    return nn.LayerNorm(features, eps=1e-12)


class Embeddings(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCABULARY, features)
        self.position_embeddings = nn.Embedding(POSITIONS, features)
        self.token_type_embeddings = nn.Embedding(TOKEN_TYPES, features)
        self.LayerNorm = layer_norm(features)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.LayerNorm(self.word_embeddings(tokens) + self.position_embeddings(places)
                              + self.token_type_embeddings(torch.zeros_like(tokens)))


class SelfAttention(nn.Module):
    def __init__(self, heads, features):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(features, features) for _ in range(3))

    def forward(self, x):
        split = lambda y: y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(
            split(self.query(x)), split(self.key(x)), split(self.value(x)))
        return attended.transpose(1, 2).flatten(2)


class Output(nn.Module):
    """A linear layer, what went around it, and their layer norm."""

    def __init__(self, inputs, features):
        super().__init__()
        self.dense = nn.Linear(inputs, features)
        self.LayerNorm = layer_norm(features)

    def forward(self, x, around):
        return self.LayerNorm(self.dense(x) + around)


class Layer(nn.Module):
    def __init__(self, heads, features):
        super().__init__()
        self.attention = nn.ModuleDict(
            {"self": SelfAttention(heads, features), "output": Output(features, features)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(features, 4 * features)})
        self.output = Output(4 * features, features)

    def forward(self, x):
        x = self.attention["output"](self.attention["self"](x), x)
        return self.output(functional.gelu(self.intermediate["dense"](x)), x)


class Bert(nn.Module):
    """From tokens [batch, length] to the logits of the start and of the end, each like them."""

    def __init__(self, name):
        super().__init__()
        layers, heads, features = BERTS[name]
        self.bert = nn.ModuleDict({
            "embeddings": Embeddings(features),
            "encoder": nn.ModuleDict(
                {"layer": nn.ModuleList(Layer(heads, features) for _ in range(layers))})})
        self.qa_outputs = nn.Linear(features, 2)
        self.apply(start)

    def forward(self, tokens):
        x = self.bert["embeddings"](tokens)
        for layer in self.bert["encoder"]["layer"]:
            x = layer(x)
        return self.qa_outputs(x).unbind(-1)


def start(module):
    """Draws the weights of a layer as Hugging Face does."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=DEVIATION)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
