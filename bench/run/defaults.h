// Fills what the command line left open, according to the device.
#pragma once

#include <string>
#include <vector>

#include "reports/document/settings.h"

namespace nearmetal {

/// Sets the device, and all that depends on it and was not asked for:
///
/// |               | cuda                    | cpu                      |
/// | ------------- | ----------------------- | ------------------------ |
/// | precision     | fp16                    | fp32                     |
/// | batch         | 256; 32 sequences       | 16; 4 sequences          |
/// | warmup        | 120                     | 3                        |
/// | launch        | graph                   | does not apply           |
/// | all_reduce    | nccl                    | does not apply           |
/// | loss_scale    | a power of two in fp16: 8 x sqrt(batch), zero_init: 1024; else 1 |
///
/// and by the network, whose customary optimizer it takes:
///
/// |               | sgd                                | adamw |
/// | ------------- | ---------------------------------- | ----- |
/// | learning_rate | batch / 64 / features, at most 0.1 | 5e-5  |
/// | weight_decay  | 1e-4                               | 0.01  |
///
/// Networks that read sequences take such of 384 tokens.
///
/// The features are those that the classifier reads. Learning rate and loss scale of fp16 wait for
/// the batch: call again once `--batch auto` is settled. Throws std::invalid_argument for a model
/// that is not known.
void fill_defaults(RunConfig& config, Device device);

/// Throws std::invalid_argument for settings of images that were given to a network that reads
/// sequences, and the other way round.
void check_samples(const Workload& workload);

/// Throws std::invalid_argument for settings that contradict each other or the device, defaults
/// filled.
void check_settings(const Workload& workload);

/// Throws std::invalid_argument where so many ranks are no whole number of replicas.
void require_whole_replicas(const RunConfig& config, int64_t ranks);

/// A remark on each setting that was given and that these ranks make no use of. Not refused, as the
/// layouts of a sweep have their settings in common.
std::vector<std::string> flags_without_effect(const Workload& workload, int world_size);

}  // namespace nearmetal
