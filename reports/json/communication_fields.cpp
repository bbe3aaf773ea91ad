// The fields of the exchange of gradients, with what must hold of them.
#include "reports/json/fields.h"

namespace nearmetal::json {

void fields(Archive& field, Bucket& bucket) {
  field.type("bucket", "A part of the gradient that is summed over the ranks at once");
  field("bytes", bucket.bytes, at_least(1));
  field.added("type", bucket.type, "Type of the elements on their way; null: an earlier report");
  field("seconds", bucket.seconds, above(0),
        "Time of one sum on the slowest rank, with nothing else going on");
  field("bus_bandwidth_bytes_per_second", bucket.bus_bandwidth_bytes_per_second, at_least(0),
        "2 (ranks - 1) / ranks x bytes / seconds: what a link of a ring carries; where all_reduce "
        "is hierarchical or host only the rate of a ring that takes as long");
}

void fields(Archive& field, TriedBucket& tried) {
  field.type("tried_bucket", "The step with gradients sent in buckets of this size");
  field("bucket_mib", tried.bucket_mib, at_least(0));
  field("step_seconds", tried.step_seconds, above(0), "Median of a few steps, on the slowest rank");
}

void fields(Archive& field, TriedAllReduce& tried) {
  field.type("tried_all_reduce", "The step with gradients summed in this way");
  field("all_reduce", tried.all_reduce, without(AllReduceKind::automatic));
  field("step_seconds", tried.step_seconds, above(0),
        "Median of many steps, on the slowest rank; the mean of all turns");
}

void fields(Archive& field, SumChoice& sum) {
  field.type("sum_choice", "How NCCL sums so many bytes over the ranks");
  field("bytes", sum.bytes, at_least(1));
  field("algorithm", sum.algorithm, "ring, tree, nvls, ...");
  field("protocol", sum.protocol, "ll, ll128 or simple");
  field("channels", sum.channels, at_least(1));
  field.added("operation", sum.operation,
              "allreduce, or its parts inside a host: reduce, broadcast");
}

void fields(Archive& field, NcclChoices& choices) {
  field.type("nccl_choices", "Choices of NCCL, as reported to rank 0");
  field("sums", choices.sums);
  field("transports", choices.transports, "Ways to other ranks: P2P/CUMEM, ...");
  field("rings", choices.rings, "Ranks in their order, each order once: \"0 1 3 2\"");
}

void fields(Archive& field, Communication& communication) {
  field.type("communication", "The exchange of gradients between ranks");
  field("library", communication.library, "What summed, and its version");
  field.added("all_reduce", communication.all_reduce, without(AllReduceKind::automatic),
              "What summed; hierarchical: NCCL inside each host and MPI between them; host: copy "
              "engines through the memory of one host; null: an earlier report");
  field.added(
      "tried_all_reduces", communication.tried_all_reduces,
      "The ways that the run chose from; empty where all_reduce was given, or an earlier run "
      "of the sweep chose; since 1.13");
  field("bytes_per_step", communication.bytes_per_step, at_least(1), "Size of the gradient");
  field.added("bucket_mib", communication.bucket_mib, at_least(0),
              "Wanted size of each bucket; 0: all at once");
  field.added("tried", communication.tried, "Empty where bucket_mib was given");
  field("exposed_seconds_per_step", communication.exposed_seconds_per_step, at_least(0),
        "Largest of the ranks' medians over the window: time in which gradients are on their way "
        "and there is nothing else to do");
  field.added("best_bus_bandwidth_bytes_per_second",
              communication.best_bus_bandwidth_bytes_per_second, above(0),
              "Best of the buckets; where all_reduce is hierarchical or host not what a link "
              "carries");
  field.added("least_seconds_per_step", communication.least_seconds_per_step, above(0),
              "2 (ranks - 1) / ranks x bytes_per_step / best_bus_bandwidth_bytes_per_second");
  field("buckets_seconds", communication.buckets_seconds, above(0),
        "All buckets one after another with nothing else going on");
  field("buckets", communication.buckets);
  field.added("nccl", communication.nccl, "Choices of NCCL, from its log");
}

}  // namespace nearmetal::json
