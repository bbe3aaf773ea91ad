// The fields of the exchange of gradients, with what must hold of them.
#pragma once

#include "reports/document/communication.h"
#include "reports/json/json_archive.h"

namespace nearmetal::json {

template <class Archive>
void fields(Archive& field, In<Archive, Bucket> bucket) {
  field("bytes", bucket.bytes, at_least(1));
  field.added("type", bucket.type);
  field("seconds", bucket.seconds, above(0));
  field("bus_bandwidth_bytes_per_second", bucket.bus_bandwidth_bytes_per_second, at_least(0));
}

template <class Archive>
void fields(Archive& field, In<Archive, TriedBucket> tried) {
  field("bucket_mib", tried.bucket_mib, at_least(0));
  field("step_seconds", tried.step_seconds, above(0));
}

template <class Archive>
void fields(Archive& field, In<Archive, SumChoice> sum) {
  field("bytes", sum.bytes, at_least(1));
  field("algorithm", sum.algorithm);
  field("protocol", sum.protocol);
  field("channels", sum.channels, at_least(1));
  field.added("operation", sum.operation);
}

template <class Archive>
void fields(Archive& field, In<Archive, NcclChoices> choices) {
  field("sums", choices.sums);
  field("transports", choices.transports);
  field("rings", choices.rings);
}

template <class Archive>
void fields(Archive& field, In<Archive, Communication> communication) {
  field("library", communication.library);
  field.added("all_reduce", communication.all_reduce, without(AllReduceKind::automatic));
  field("bytes_per_step", communication.bytes_per_step, at_least(1));
  field.added("bucket_mib", communication.bucket_mib, at_least(0));
  field.added("tried", communication.tried);
  field("exposed_seconds_per_step", communication.exposed_seconds_per_step, at_least(0));
  field.added("best_bus_bandwidth_bytes_per_second",
              communication.best_bus_bandwidth_bytes_per_second, above(0));
  field.added("least_seconds_per_step", communication.least_seconds_per_step, above(0));
  field("buckets_seconds", communication.buckets_seconds, above(0));
  field("buckets", communication.buckets);
  field.added("nccl", communication.nccl);
}

}  // namespace nearmetal::json
