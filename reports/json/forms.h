// What the texts of documents must look like.
#pragma once

#include "reports/json/json_archive.h"

namespace nearmetal::json {

inline bool all_digits(const std::string& text, const char* digits) {
  return text.find_first_not_of(digits) == std::string::npos;
}
inline constexpr Form hash{[](const std::string& text) {
                             return text.size() == 64 && all_digits(text, "0123456789abcdef");
                           },
                           "64 hexadecimal digits"};
inline constexpr Form commit{[](const std::string& text) {
                               return text.size() >= 40 && text.size() <= 64 &&
                                      all_digits(text, "0123456789abcdef");
                             },
                             "a commit id"};
inline constexpr Form time_stamp{[](const std::string& text) {
                                   const std::string form = "dddd-dd-ddTdd:dd:ddZ";
                                   if (text.size() != form.size()) return false;
                                   for (size_t i = 0; i < form.size(); ++i) {
                                     const bool digit = text[i] >= '0' && text[i] <= '9';
                                     if (form[i] == 'd' ? !digit : text[i] != form[i]) return false;
                                   }
                                   return true;
                                 },
                                 "a time such as 2026-01-31T12:00:00Z"};
inline constexpr Form phase_kind{[](const std::string& text) {
                                   return text == "input" || text == "forward" ||
                                          text == "backward" || text == "exchange" ||
                                          text == "update";
                                 },
                                 "input, forward, backward, exchange or update"};
inline constexpr Form code{[](const std::string& text) {
                             return !text.empty() &&
                                    all_digits(text, "abcdefghijklmnopqrstuvwxyz_");
                           },
                           "a code of lower-case letters and underscores"};
inline constexpr Form report_schema_name{
    [](const std::string& text) { return text == "nearmetal/report"; }, "nearmetal/report"};
inline constexpr Form readable_version{[](const std::string& text) {
                                         return text.size() > 2 && text.starts_with("1.") &&
                                                all_digits(text.substr(2), "0123456789");
                                       },
                                       "1.x, the versions that this program reads"};

}  // namespace nearmetal::json
