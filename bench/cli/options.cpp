#include "bench/cli/options.h"

namespace nearmetal {

bool is_argument(const OptionSpec& option) { return !option.name.starts_with("-"); }

std::vector<std::string> flags_of(const OptionSpec& option) {
  return is_argument(option) ? std::vector<std::string>{} : comma_separated(option.name);
}

std::string value_of(const OptionSpec& option) {
  const bool is_list = option.value.find('|') != option.value.npos;
  return is_argument(option) && !is_list ? option.name : option.value;
}

OptionSpec& Options::add(OptionSpec spec) {
  spec.group = heading_;
  return specs_.emplace_back(std::move(spec));
}

OptionSpec& Options::value(const std::string& name, const std::string& value,
                           const std::string& help, const Setter& set) {
  return add({.name = name,
              .takes = OptionSpec::Takes::one,
              .value = value,
              .help = help,
              .set = [set](const Texts& texts) { set(texts.front()); }});
}

OptionSpec& Options::values(const std::string& name, const std::string& value,
                            const std::string& help,
                            const std::function<void(const Texts& texts)>& set) {
  return add(
      {.name = name, .takes = OptionSpec::Takes::many, .value = value, .help = help, .set = set});
}

OptionSpec& Options::repeated(const std::string& name, const std::string& value,
                              const std::string& help,
                              const std::function<void(const Texts& texts)>& set) {
  return add(
      {.name = name, .takes = OptionSpec::Takes::each, .value = value, .help = help, .set = set});
}

OptionSpec& Options::toggle(const std::string& name, const std::string& help,
                            const std::function<void()>& set) {
  return add({.name = name, .help = help, .set = [set](const Texts&) { set(); }});
}

OptionSpec& Options::paths(const std::string& name, const std::string& value, Texts& members,
                           const std::string& help) {
  return values(name, value, help, [name, &members](const Texts& texts) {
    for (const std::string& text : texts) members.push_back(checked_path(name, text));
  });
}

}  // namespace nearmetal
