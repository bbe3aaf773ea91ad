#include "tests/ops/child_answers.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace nearmetal {
namespace {

constexpr unsigned seconds_per_answer = 60;

[[noreturn]] void answer_into(int pipe_end, size_t first, size_t questions,
                              const std::function<std::string(size_t)>& answer) {
  for (size_t i = first; i < questions; ++i) {
    std::string line;
    alarm(seconds_per_answer);
    try {
      line = answer(i);
    } catch (const std::exception& error) {
      line = std::string("refused: ") + error.what();
    }
    std::replace(line.begin(), line.end(), '\n', ' ');
    line += '\n';
    if (write(pipe_end, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(1);
  }
  _exit(0);
}

}  // namespace

std::vector<std::string> answers_of_children(size_t questions,
                                             const std::function<std::string(size_t)>& answer) {
  std::vector<std::string> answers;
  while (answers.size() < questions) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe for the answers");
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("no process for the answers");
    if (child == 0) answer_into(ends[1], answers.size(), questions, answer);
    close(ends[1]);
    std::ifstream lines("/dev/fd/" + std::to_string(ends[0]));
    for (std::string line; std::getline(lines, line) && !lines.eof();) answers.push_back(line);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (answers.size() == questions) break;
    answers.push_back(WIFSIGNALED(status) ? std::string("crashed: ") + strsignal(WTERMSIG(status))
                                          : "ended with " + std::to_string(WEXITSTATUS(status)));
  }
  return answers;
}

}  // namespace nearmetal
