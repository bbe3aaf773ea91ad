// Reads structs from JSON, each field checked.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reports/json/archive.h"

namespace nearmetal {

/// Why a text is not JSON, in one line: what nlohmann::json throws, "[json.exception...] parse
/// error at ...". The word where it stopped is quoted there, however long: what goes beyond 200
/// bytes is cut.
std::string parser_reason(const std::string& what);

}  // namespace nearmetal

namespace nearmetal::json {

/// The document that is read: keys in a map, so that an object with many of them takes no quadratic
/// time.
using Document = nlohmann::json;

/// Throws Document::exception for what is no JSON.
Document document_of(const std::string& text);

/// In a document of a program, fields that are not known are tolerated, as minor versions of its
/// schema add them; in one that is written by hand (`strict`) they are refused.
enum class Tolerance { tolerant, strict };

class Reader : public Archive {
 public:
  Reader(const Document& object, const Place& place, Tolerance tolerance = Tolerance::tolerant);

  bool reads() const override { return true; }
  void unit(const char* key, SampleUnit& value) override;
  void require(const char* key) override { member(key); }
  void scalars(std::map<std::string, std::string>& values) override;
  void scalar_lists(std::map<std::string, std::vector<std::string>>& values) override;
  /// After all fields: throws InvalidReport for a member that is none of them.
  void require_all_known() const;

 private:
  void take(const Field& field) override;
  void take_settings(const char* key, const Type& type, void* values, Origins& origins,
                     const char* about) override;
  void take_maybe(const Field& field);
  const Document& member(const char* key);
  /// Throws InvalidReport for a field that is not known, and like the one that is missing.
  void refuse_misspelt(const char* missing) const;
  /// Why the value of `key`, which is null, is not known.
  const std::string& reason(const char* key) const;
  void read(const Document& json, const Place& place, const Type& type, void* value,
            const Check& check) const;
  void read_list(const Document& json, const Place& place, const Type& type, void* list,
                 const Check& check) const;
  void read_object(const Document& json, const Place& place, const Type& type, void* object) const;

  const Document& object_;
  Place place_;
  bool strict_;
  Origins* origins_ = nullptr;                                 // of settings
  std::optional<std::map<std::string, std::string>> reasons_;  // of what is unknown
  std::vector<std::string> known_;                             // fields, in strict documents
};

}  // namespace nearmetal::json
