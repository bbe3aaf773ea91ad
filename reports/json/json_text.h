// Structs as JSON text, for those who need no JSON library, which costs each file seconds to
// compile.
#pragma once

#include <string>

#include "reports/json/archive.h"

namespace nearmetal::json {

/// A struct that has fields().
struct Object {
  template <class T>
  Object(const T& value)  // which writers do not change
      : visit(visit_fields<T>), value(const_cast<T*>(&value)) {}

  void (*visit)(Archive& archive, void* object);
  void* value;
};

/// Strict JSON on one line, UTF-8 (bytes that are not are replaced), doubles so that they read back
/// unchanged. Throws std::logic_error for a number that is not finite.
std::string line_of(const Object& object);
/// The same on many lines, with the end of the last.
std::string lines_of(const Object& object);

/// The JSON Schema of a document, an instance of which is given.
std::string schema_text_of(const Object& sample, const char* title);

void parse(const std::string& text, const char* not_json, const Object& into);
/// Reads a document. Throws InvalidReport, for what is no JSON with these words.
template <class T>
T parsed(const std::string& text, const char* not_json = "not JSON") {
  T value;
  parse(text, not_json, value);
  return value;
}

}  // namespace nearmetal::json
