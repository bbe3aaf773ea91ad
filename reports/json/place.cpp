#include "reports/json/place.h"

#include "models/errors.h"

namespace nearmetal::json {

std::string Place::pointer() const {
  if (parent == nullptr) return "";
  std::string text = parent->pointer() + "/";
  if (index) return text + std::to_string(*index);
  for (const char c : key) {
    if (c == '~') {
      text += "~0";
    } else if (c == '/') {
      text += "~1";
    } else {
      text += c;
    }
  }
  return text;
}

void fail(const Place& place, const std::string& must_be) {
  const std::string pointer = place.pointer();
  throw InvalidReport((pointer.empty() ? "/" : pointer) + " must be " + must_be);
}

}  // namespace nearmetal::json
