#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "bench/cli/build_info.h"
#include "models/load_module.h"
#include "reports/files/sha256.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

// A note is a header, the name of its owner and what that says, both filled up to 4 bytes.
std::string_view build_id_in(std::string_view notes) {
  constexpr std::string_view owner("GNU\0", 4);
  const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
  ElfW(Nhdr) note{};
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    const size_t begin = sizeof note + padded(note.n_namesz);
    if (begin + note.n_descsz > notes.size()) break;
    if (note.n_type == NT_GNU_BUILD_ID && notes.substr(sizeof note, note.n_namesz) == owner) {
      return notes.substr(begin, note.n_descsz);
    }
    notes.remove_prefix(std::min(notes.size(), begin + padded(note.n_descsz)));
  }
  return {};
}

template <class T>
bool read_at(std::ifstream& file, size_t place, T* values, size_t count) {
  file.seekg(static_cast<std::streamoff>(place));
  return !!file.read(reinterpret_cast<char*>(values),
                     static_cast<std::streamsize>(count * sizeof(T)));
}

// The ID that the linker gave a program or library; empty where it gave none.
std::string build_id_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  ElfW(Ehdr) header{};
  if (!read_at(file, 0, &header, 1)) return "";
  std::vector<ElfW(Phdr)> parts(header.e_phnum);
  if (!read_at(file, header.e_phoff, parts.data(), parts.size())) return "";
  for (const ElfW(Phdr) & part : parts) {
    if (part.p_type != PT_NOTE) continue;
    std::string notes(part.p_filesz, '\0');
    if (!read_at(file, part.p_offset, notes.data(), notes.size())) return "";
    if (const std::string_view id = build_id_in(notes); !id.empty()) return std::string(id);
  }
  return "";
}

}  // namespace

std::optional<std::string> own_build_id() {
  const std::string program = build_id_of("/proc/self/exe");
  if (program.empty()) return std::nullopt;
  std::string all = program;
  for (const fs::path& module : modules_of(program_path())) {
    all += module.filename().string() + build_id_of(module);
  }
  return sha256(all);
}

}  // namespace nearmetal
