// The fields of imported results, in the order of the document.
#include "reports/json/fields.h"

namespace nearmetal::json {

void fields(Archive& field, ImportedSource& source) {
  field.type("imported_source", "A published file that results were read from");
  field("file", source.file, "Its name, without folders");
  field("sha256", source.sha256, hash, "Hash of the whole file");
  field("format", source.format);
  field("origin", source.origin, "Where it was published; null: not stated");
}

void fields(Archive& field, ImportedRun& run) {
  field.type("imported_run",
             "A result from a published file. What the file does not say is null or absent");
  field("source", run.source, at_least(0), "Index into sources");
  field("line", run.line, at_least(1),
        "Line with which the result begins; null: the file has none");
  field("number", run.number, at_least(0), "Its place among the results of the file");
  field("started_at", run.started_at, time_stamp, "RFC 3339, UTC");
  field("world_size", run.world_size, at_least(1), "Number of GPUs");
  field("throughput_images_per_second", run.throughput, above(0), "Images/s of all GPUs");
  field("bus_bandwidth_bytes_per_second", run.bus_bandwidth, above(0), "As nccl-tests defines it");
  field("work", run.work, "What must agree between runs that are compared");
  field("facts", run.facts, "What else the file says, by its own names");
}

}  // namespace nearmetal::json
