#include "bench/sweep/keeper.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>

namespace nearmetal {
namespace {

// `input` is its standard input.
int spawn_shell(std::vector<std::string> words, int input, pid_t& pid) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int failed =
      posix_spawn(&pid, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return failed;
}

}  // namespace

Keeper::Keeper(const char* script, std::vector<std::string> arguments) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error(std::string("no pipe to a keeper: ") + std::strerror(errno));
  }
  // Its commands, whatever PATH is. An empty element would be the current folder.
  const std::string found = "PATH=\"${PATH:+$PATH:}/usr/bin:/bin\"\n";
  std::vector<std::string> words = {"/bin/sh", "-c", found + script, "nearmetal-keeper"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const int failed = spawn_shell(std::move(words), ends[0], pid_);
  close(ends[0]);
  lifeline_ = ends[1];
  if (failed == 0) return;
  close(lifeline_);
  throw std::runtime_error(std::string("no keeper: ") + std::strerror(failed));
}

void Keeper::finish() {
  if (pid_ < 0) return;
  close(lifeline_);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void Keeper::leave() {
  if (pid_ < 0) return;
  close(lifeline_);
  pid_ = -1;
}

void Keeper::dismiss() {
  if (pid_ > 0) kill(pid_, SIGKILL);
  finish();
}

}  // namespace nearmetal
