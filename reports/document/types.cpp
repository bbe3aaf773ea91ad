#include "reports/document/types.h"

namespace nearmetal {

const MonitoredSeries* series_named(const Monitoring& monitoring, const std::string& name) {
  for (const MonitoredSeries& series : monitoring.series) {
    if (series.name == name) return &series;
  }
  return nullptr;
}

}  // namespace nearmetal
