// Reports as JSON text: written from and read into the typed structs.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// Strict JSON, UTF-8 (bytes that are not are replaced), doubles so that they read back unchanged.
/// Throws std::logic_error for a number that is not finite: unknown is null, with a reason.
std::string to_json(const Report& report);

/// Changes all that is written for people or comes from the machine, such as arguments, variables,
/// failures, warnings and reasons; not the names of arms.
void change_free_texts(Report& report,
                       const std::function<std::string(const std::string& text)>& change);

/// The JSON Schema (2020-12) of a report, as reports/schema/report.schema.json.
std::string report_schema();

/// Throws InvalidReport for a text that is too large, nested too deeply (64), or of too many values
/// to be read in bounded memory.
void require_within_limits(std::string_view text);

/// Checks all that reports/schema/report.schema.json says. Throws InvalidReport that names the
/// place as a JSON pointer.
Report report_from_json(std::string text);
/// Refuses one that contradicts itself, too (reports/json/consistency.h). `key`: of the member that
/// it is of the document; empty: it is all of it.
Report consistent_report_from_json(std::string text, const std::string& key = "");

/// SHA-256 of the settings that decide what is computed; those of output and display are left out,
/// and those that are not to `count`.
std::string config_sha256(
    const RunConfig& config,
    const std::function<bool(const std::string& name)>& counts = [](const auto&) { return true; });
/// SHA-256 of keys and implementations, in any order; not of the times.
std::string kernel_choices_sha256(const std::vector<KernelChoice>& plans);

/// Every fact of an environment by its place in the report, such as "gpus/0/driver_version"; what
/// is not known is "unknown".
std::vector<std::pair<std::string, std::string>> environment_facts(const Environment& environment);

/// One object of texts, numbers and truth values, at most 64 KiB and 256 entries of 1000
/// characters. Throws InvalidReport for any other text.
std::map<std::string, std::string> host_facts_from_json(const std::string& text);

}  // namespace nearmetal
