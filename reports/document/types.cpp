#include "reports/document/types.h"

#include <stdexcept>

namespace nearmetal {

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::measured:
      return "measured";
    case Kind::emulated:
      return "emulated";
    case Kind::predicted:
      return "predicted";
  }
  throw std::logic_error("unnamed Kind");
}

const char* to_string(Status status) {
  switch (status) {
    case Status::complete:
      return "complete";
    case Status::partial:
      return "partial";
    case Status::failed:
      return "failed";
  }
  throw std::logic_error("unnamed Status");
}

const char* to_string(Origin origin) {
  switch (origin) {
    case Origin::standard:
      return "default";
    case Origin::flag:
      return "flag";
  }
  throw std::logic_error("unnamed Origin");
}

const MonitoredSeries* series_named(const Monitoring& monitoring, const std::string& name) {
  for (const MonitoredSeries& series : monitoring.series) {
    if (series.name == name) return &series;
  }
  return nullptr;
}

}  // namespace nearmetal
