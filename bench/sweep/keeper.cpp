#include "bench/sweep/keeper.h"

#include <utility>

namespace nearmetal {

Keeper::Keeper(const char* script, const std::vector<std::string>& arguments) {
  Pipe input;
  // Its commands, whatever PATH is. An empty element would be the current folder.
  const std::string found = "PATH=\"${PATH:+$PATH:}/usr/bin:/bin\"\n";
  std::vector<std::string> words = {"/bin/sh", "-c", found + script, "nearmetal-keeper"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  pid_ = start_child(words, {.in = input.read.number(), .own_session = true});
  lifeline_ = std::move(input.write);
}

void Keeper::finish() {
  lifeline_.close();
  if (pid_ > 0) wait_for_child(std::exchange(pid_, -1));
}

void Keeper::leave() {
  lifeline_.close();
  pid_ = -1;
}

void Keeper::dismiss() {
  if (pid_ > 0) kill_child(std::exchange(pid_, -1));
}

}  // namespace nearmetal
