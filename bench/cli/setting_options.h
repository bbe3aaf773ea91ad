// How a flag of the command line is tied to a member of RunConfig.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "bench/cli/command_line.h"
#include "bench/cli/parse_value.h"

namespace nearmetal {

template <class T>
std::string default_text(const T& member) {
  std::ostringstream text;
  text << " [" << member << "]";
  return text.str();
}
template <class T>
std::string default_text(const std::optional<T>&) {
  return "";
}

// Ties each flag to a member of RunConfig: one call is the whole of an option.
class RunOptions {
 public:
  RunOptions(CLI::App& app, CommandLine& line)
      : app_(app), origins_(line.origins), typed_(line.run_flags) {}

  void group(const char* name) { group_ = name; }

  using Setter = std::function<void(const std::string& text)>;

  // `setting` is the name in the report.
  void add(const std::string& flag, const std::string& setting, const char* type,
           const std::string& help, const Setter& set) {
    origins_[setting] = Origin::standard;
    const auto take = [&origins = origins_, &typed = typed_, flag, setting,
                       set](const std::string& text) {
      set(text);
      origins[setting] = Origin::flag;
      typed.push_back(flag + "=" + text);
    };
    app_.add_option_function<std::string>(flag, take, help)
        ->option_text(type)
        ->group(group_)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  template <class T>
  void number(const std::string& flag, std::optional<T>& member, Bounds bounds, const char* help) {
    add(flag, setting_of(flag), "N", help,
        [=, &member](const std::string& text) { member = parse_number<T>(flag, text, bounds); });
  }
  template <class T>
  void number(const std::string& flag, T& member, Bounds bounds, const char* help) {
    add(flag, setting_of(flag), "N", help + default_text(member),
        [=, &member](const std::string& text) { member = parse_number<T>(flag, text, bounds); });
  }
  template <class T>
  void choice(const std::string& flag, T& member, const std::vector<std::string>& choices,
              const char* type, const char* help) {
    add(flag, setting_of(flag), type, help + default_text(member),
        [=, &member](const std::string& text) {
          require_choice(flag, text, choices);
          member = text;
        });
  }
  void path(const std::string& flag, std::optional<std::string>& member, const char* type,
            const char* help) {
    add(flag, setting_of(flag), type, help,
        [=, &member](const std::string& text) { member = checked_path(flag, text); });
  }
  void toggle(const std::string& flag, bool& member, const char* help) {
    const std::string setting = setting_of(flag);
    origins_[setting] = Origin::standard;
    const auto take = [&origins = origins_, &typed = typed_, flag, setting, &member] {
      member = true;
      origins[setting] = Origin::flag;
      typed.push_back(flag);
    };
    app_.add_flag_callback(flag, take, help)->group(group_);
  }

  // --image-size is image_size in the report.
  static std::string setting_of(const std::string& flag) {
    std::string setting = flag.substr(2);
    std::replace(setting.begin(), setting.end(), '-', '_');
    return setting;
  }

 private:
  CLI::App& app_;
  Origins& origins_;
  std::vector<std::string>& typed_;
  const char* group_ = "";
};

}  // namespace nearmetal
