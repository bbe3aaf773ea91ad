// How a flag of the command line is tied to a member of RunConfig.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "bench/cli/options.h"
#include "bench/cli/run_request.h"

namespace nearmetal {

// Ties each flag to a member of RunConfig: one call is the whole of an option.
class RunOptions {
 public:
  // `request` keeps who set each setting, and in which order.
  RunOptions(Options& options, RunRequest& request)
      : options_(options), origins_(request.origins), given_(request.given) {}

  void group(const char* name) { group_ = name; }

  using Setter = Options::Setter;

  // `setting` is the name in the report.
  void add(const std::string& flag, const std::string& setting, const char* type,
           const std::string& help, const Setter& set) {
    record(setting, options_.value(flag, type, help, set));
  }
  template <class T>
  void number(const std::string& flag, T& member, Bounds bounds, const char* help) {
    record(setting_of(flag), options_.number(flag, "N", member, bounds, help));
  }
  void path(const std::string& flag, std::optional<std::string>& member, const char* type,
            const char* help) {
    record(setting_of(flag), options_.path(flag, type, member, help));
  }
  void toggle(const std::string& flag, bool& member, const char* help) {
    record(setting_of(flag), options_.toggle(flag, member, help));
  }

  // --image-size is image_size in the report.
  static std::string setting_of(const std::string& flag) {
    std::string setting = flag.substr(2);
    std::replace(setting.begin(), setting.end(), '-', '_');
    return setting;
  }

 private:
  void record(const std::string& setting, OptionSpec& option) {
    origins_.at(setting) = Origin::standard;  // the report knows it
    option.group = group_;
    option.set = [set = option.set, &origins = origins_, &given = given_,
                  setting](const std::vector<std::string>& texts) {
      set(texts);
      origins[setting] = Origin::flag;
      given.push_back(setting);
    };
  }

  Options& options_;
  Origins& origins_;
  std::vector<std::string>& given_;
  const char* group_ = "";
};

}  // namespace nearmetal
