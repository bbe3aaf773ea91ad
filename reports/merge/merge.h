// Several reports as one: of the ranks of a job, of jobs, and the hosts of either.
#pragma once

#include <utility>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// `reports`: of each rank in order, one arm with one run with one rank. Ranks of one host share
/// its environment. Images are those of all ranks; seconds those of the slowest, as ranks that
/// train one network end each step together; the throughput of ranks that are independent of each
/// other is the sum of theirs. Losses and gradient norms are means over ranks. The job is no better
/// than the worst of its ranks. What is not of a rank (configuration, plans, profile) is rank 0's.
Report merge_ranks(std::vector<Report> reports);

/// Jobs ran all at once, or one after another.
enum class JobOrder { at_once, in_turn };

/// A run and the environments that its ranks' indexes mean. `jobs`: one report each, of one arm
/// with one run. The ranks follow each other. Of jobs at once only the time counts in which every
/// rank of every job was in its window: images are those of the steps in it, a step that it cuts by
/// its share; throughput is cumulative. Where there is no such time, or a job is not complete,
/// there is none. Of jobs in turn images and seconds are the sums of their windows, so that with
/// equal windows the throughput is the mean, and with equal steps what all took together. One job
/// alone stays as it is. `unlike`: they did unlike work, of which operations per second are summed,
/// and nothing else.
std::pair<Run, std::vector<Environment>> merge_jobs(std::vector<Report> jobs, bool unlike = false,
                                                    JobOrder order = JobOrder::at_once);

/// Adds the digests of ranks that follow `first_rank` others: equal ones share a group.
void add_digests(const std::vector<DigestGroup>& found, int64_t first_rank,
                 std::vector<DigestGroup>& all);

/// Appends what `all` does not have of `found` and makes `ranks`, which index `found`, index `all`.
/// An environment is that of a host; GPUs are known by their UUID, and one without is another.
void merge_environments(const std::vector<Environment>& found, std::vector<Rank>& ranks,
                        std::vector<Environment>& all);

}  // namespace nearmetal
