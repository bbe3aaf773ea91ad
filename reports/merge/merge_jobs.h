// From the reports of jobs that ran at once, or one after another, to one run of all.
#pragma once

#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// A run and the environments that its ranks' indexes mean.
struct RunFound {
  Run run;
  std::vector<Environment> environments;
};

/// `jobs`: one report each, of one arm with one run. The ranks follow each other. Only the time
/// counts in which every rank of every job was in its window: images are those of the steps in it,
/// a step that it cuts by its share; throughput is cumulative. Where a job is not complete, or
/// there is no such time, there is none. One job alone stays as it is.
RunFound merge_jobs(std::vector<Report> jobs);

/// The same of jobs that ran one after another: images and seconds are the sums of their windows,
/// so that with equal windows the throughput is the mean, and with equal steps what all took
/// together.
RunFound merge_serial_jobs(std::vector<Report> jobs);

}  // namespace nearmetal
