// The ops of linear layers, losses and transformers.
#pragma once

#include "models/cuda/compiler/planner.h"

namespace nearmetal::cuda {

/// A linear layer whose outputs are fp32 logits.
void forward_classifier(Planner& p, int linear);
void forward_token_linear(Planner& p, int linear);
void backward_linear(Planner& p, int linear);
void forward_loss(Planner& p, int loss);

void forward_layer_norm(Planner& p, int norm);
void backward_layer_norm(Planner& p, int norm);
/// Adds what the blocks of all layer norms of the backward pass have summed up.
void sum_layer_norms(Planner& p);
void forward_gelu(Planner& p, const ActivationPattern& pattern);
void backward_gelu(Planner& p, const ActivationPattern& pattern);

void forward_attention(Planner& p, int attention);
void backward_attention(Planner& p, int attention);

void forward_class_token(Planner& p, int node);
void backward_class_token(Planner& p, int node);
void forward_positions(Planner& p, int node);
void backward_positions(Planner& p, int node);
void forward_select_token(Planner& p, int node);
void backward_select_token(Planner& p, int node);
void forward_embedding(Planner& p, int embedding);
void backward_embedding(Planner& p, int embedding);

}  // namespace nearmetal::cuda
