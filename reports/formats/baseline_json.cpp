#include "reports/formats/baseline_json.h"

#include "reports/json/json_text.h"
#include "reports/json/report_fields.h"

namespace nearmetal {
namespace json {

struct BaselinesDocument {
  std::string schema = "nearmetal/baselines";
  std::string schema_version = "1.0";
  std::vector<BaselineSeries> series;
};

void fields(Archive& field, NeededRuns& needed) {
  field.type("needed_runs", "Runs that each side of a gate needs to find a drop");
  field("drop", needed.drop, above(0), "Drop of throughput, as a share");
  field("runs", needed.runs, at_least(1));
}

void fields(Archive& field, BaselineSeries& series) {
  field.type("series", "The runs of one arm under one fingerprint");
  field("baseline", series.baseline);
  field("fingerprint", series.fingerprint,
        "First digits of the hash of what runs must agree in, but for the layout");
  field("arm", series.arm);
  field.unit("sample", series.sample);
  field("runs", series.runs, at_least(0), "Runs that are complete");
  field("left_out", series.left_out, at_least(0), "Runs that are not complete");
  field("first", series.first, time_stamp, "Start of the first run");
  field("last", series.last, time_stamp, "Start of the last run");
  field(field.words().throughput_key, series.throughput, above(0), "Geometric mean of the runs");
  field("lower", series.lower, above(0), "Bound of the 95 % interval of that mean");
  field("upper", series.upper, above(0));
  field("spread", series.spread, at_least(0), "Standard deviation of ln(run)");
  field("needed_runs", series.needed_runs);
}

void fields(Archive& field, BaselinesDocument& document) {
  field.type("baselines",
             "The runs of baselines. Fields that are not listed here are allowed: minor versions "
             "add them.");
  field("schema", document.schema, one_of("nearmetal/baselines"));
  field("schema_version", document.schema_version, readable_version);
  field("series", document.series);
}

}  // namespace json

std::string baselines_schema() {
  return json::schema_text_of(json::BaselinesDocument{}, "Baselines of nearmetal");
}

std::string to_json(const std::vector<BaselineSeries>& series) {
  const json::BaselinesDocument document{.series = series};
  return json::lines_of(document);
}

}  // namespace nearmetal
