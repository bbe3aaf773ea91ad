// The layouts of a survey: all GPUs at once, each for itself; pairs of them, in rounds; all of them
// together; and other networks, for the bits that each GPU computes. Pure functions.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "comm/layout/layout.h"

namespace nearmetal {

/// The rounds in which each of `players` meets each other one once.
size_t rounds_of(size_t players);

/// Who meets whom in a round: each has one partner at most (the circle method, Lucas 1883). Round 0
/// to rounds_of(players) - 1 have all pairs, each once.
std::vector<std::pair<size_t, size_t>> pairs_of_round(size_t players, size_t round);

/// The rounds in which hosts meet: all of them up to four hosts, then as many as the logarithm of
/// their number, three at least, so that a slow host is told from a slow partner.
size_t rounds_of_hosts(size_t hosts);

/// The instances that a survey looks at, one for each host: the GPUs, or ranks on CPUs, of the only
/// layout that is asked for, else all of the hosts, but for `silent` ones. Throws
/// std::invalid_argument for several layouts, for one of emulated VMs or shared GPUs, and where it
/// is one GPU or rank alone.
std::vector<Instance> surveyed_instances(const std::vector<Layout>& asked,
                                         const std::vector<Host>& hosts,
                                         const std::vector<std::string>& silent = {});

/// Which layouts take digests: none, `each`, or on GPUs those of other networks, too.
enum class SurveyedBits { none, own, more };

/// `each`: all at once, for themselves; `pairs-N`: all pairs of GPUs of each host, by rounds;
/// `hosts-N`: GPU i of a host with GPU i of another; `all`: one job; `bits-MODEL-PRECISION`: a few
/// steps of other networks, as `each`.
std::vector<Layout> survey_layouts(const std::vector<Instance>& instances, SurveyedBits bits);

}  // namespace nearmetal
