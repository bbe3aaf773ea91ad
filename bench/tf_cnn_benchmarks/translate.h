// The nearmetal options that flags of tf_cnn_benchmarks ask for, and runs as it prints them.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "bench/tf_cnn_benchmarks/flags.h"
#include "reports/compare/run_set.h"

namespace nearmetal {

struct TfTranslation {
  std::vector<std::string> words;    // behind `nearmetal`: of run, over several GPUs of sweep
  std::vector<std::string> remarks;  // on flags that are taken and change nothing
  std::map<std::string, std::string> flags{};  // given, by the option that each became
};

/// Settings that the flags leave open are as there, but for learning rate and loss scale. `options`
/// of run or sweep follow. `launched`: this process is a rank of a job already. Throws
/// std::invalid_argument for what is refused, with the flag and the reason.
TfTranslation translated(const TfFlagValues& flags, const std::vector<std::string>& options,
                         bool launched);

/// A message about options that flags became, with the names of the flags: of "--steps must be ..."
/// "--num_batches must be ...".
std::string in_flags(const TfTranslation& translation, const std::string& message);

/// The name there of one of our networks, or ours where it has none.
std::string tf_model_name(const std::string& ours);

/// The value of --display_every in a command line that begins with the name of the program; its
/// default where that is no such command line.
int64_t display_every_of(const std::vector<std::string>& argv);

/// Prints each run's header and its steps, where they are kept, and where it is complete
/// "total images/sec:". A step's images/s are those of all ranks, by the slowest of them, since the
/// warm-up: mean, standard error as if steps were independent, and 1.4826 x the median absolute
/// deviation of single steps. Its loss is the mean of the ranks', without weight decay. Throws
/// NotComparable for runs of several jobs at once.
void print_tf_cnn_benchmarks(std::ostream& out, const RunSet& set);

}  // namespace nearmetal
