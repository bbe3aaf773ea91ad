#include "base/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "reports/json/report_files.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

size_t files_in(const TemporaryFolder& folder) {
  return std::distance(std::filesystem::directory_iterator(folder.path()), {});
}

TEST(AtomicFile, WritesAndLeavesNothingElse) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "report.json", "content", false);
  EXPECT_EQ(content_of(folder / "report.json"), "content");
  EXPECT_EQ(files_in(folder), 1u);
}

TEST(AtomicFile, LeavesNothingWhereTheProcessIsKilledAsItWrites) {
  const TemporaryFolder folder;
  const int unnamed = open(folder.path().c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (unnamed < 0) GTEST_SKIP() << "this file system gives every file a name";
  close(unnamed);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    write_file_atomically(folder / "report.json", std::string(2000, 'x'), false);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(files_in(folder), 0u);
}

// Makes the kernel refuse this process files without a name, as NFS does.
void refuse_files_without_a_name() {
  constexpr auto number = offsetof(seccomp_data, nr);
  constexpr auto flags = offsetof(seccomp_data, args) + 2 * sizeof(__u64);  // the lower half
  constexpr auto without_name = O_TMPFILE & ~O_DIRECTORY;
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
                          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, flags),
                          BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, without_name, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(filter), filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(77);
}

// Returns 0, or the number of what went wrong. An exception ends the process, not just the test.
int write_where_every_file_has_a_name(const TemporaryFolder& folder) noexcept {
  const std::filesystem::path path = folder / "report.json";
  refuse_files_without_a_name();
  if (open(folder.path().c_str(), O_TMPFILE | O_WRONLY, 0600) >= 0) return 1;
  write_file_atomically(path, "first", false);
  if (content_of(path) != "first") return 2;
  try {
    write_file_atomically(path, "second", false);
    return 3;
  } catch (const OutputError&) {
  }
  if (content_of(path) != "first") return 4;
  write_file_atomically(path, "third", true);
  return content_of(path) == "third" ? 0 : 5;
}

TEST(AtomicFile, IsTheSameWhereEveryFileHasAName) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) _exit(write_where_every_file_has_a_name(folder));
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "the kernel or a container refuses seccomp filters";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(files_in(folder), 1u) << "nothing else is left";
}

TEST(AtomicFile, OthersMayReadAsUmaskSays) {
  const TemporaryFolder folder;
  for (const auto& [mask, mode] : {std::pair(022u, 0644u), std::pair(027u, 0640u)}) {
    const mode_t before = umask(mask);
    write_file_atomically(folder / "report.json", "content", true);
    umask(before);
    struct stat status {};
    ASSERT_EQ(stat((folder / "report.json").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, mode);
  }
}

TEST(AtomicFile, KeepsAnExistingFileUnlessAskedToReplaceIt) {
  const TemporaryFolder folder;
  const auto path = folder.write("report.json", "old");
  try {
    write_file_atomically(path, "new", false);
    FAIL() << "must not replace";
  } catch (const OutputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--force"));
  }
  EXPECT_EQ(content_of(path), "old");
  EXPECT_EQ(files_in(folder), 1u);
  write_file_atomically(path, "new", true);
  EXPECT_EQ(content_of(path), "new");
  EXPECT_EQ(files_in(folder), 1u);
}

TEST(AtomicFile, OfManyAtOnceOneWins) {
  const TemporaryFolder folder;
  std::atomic<int> winners = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      try {
        write_file_atomically(folder / "report.json", std::string(10000, 'a' + i), false);
        ++winners;
      } catch (const OutputError&) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  const std::string content = content_of(folder / "report.json");
  EXPECT_EQ(content, std::string(10000, content.at(0))) << "from one writer alone";
  EXPECT_EQ(files_in(folder), 1u);
}

// A limit on the size of files stands for a full disk: the write fails half way.
TEST(AtomicFile, AFullDiskLeavesTheOldFileAndNoNewOne) {
  const TemporaryFolder folder;
  const auto path = folder.write("report.json", "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  EXPECT_THROW(write_file_atomically(path, std::string(100000, 'x'), true), OutputError);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(content_of(path), "old");
  EXPECT_EQ(files_in(folder), 1u);
}

std::string refusal_of_path(const std::filesystem::path& path, bool replace = false) {
  return refusal_of<OutputError>([&] { require_writable(path, replace); });
}

TEST(AtomicFile, PathsAreCheckedBeforehand) {
  const TemporaryFolder folder;
  const auto existing = folder.write("old.json", "old");
  EXPECT_EQ(refusal_of_path(folder / "new.json"), "");
  EXPECT_EQ(files_in(folder), 1u) << "the check leaves nothing behind";
  EXPECT_THAT(refusal_of_path(folder.path()), HasSubstr("is a folder"));
  EXPECT_THAT(refusal_of_path(folder.path() / ""), HasSubstr("is a folder"));
  EXPECT_THAT(refusal_of_path(folder / "none/new.json"), HasSubstr("there is no folder"));
  EXPECT_THAT(refusal_of_path(existing / "new.json"), HasSubstr("there is no folder"));
  EXPECT_THAT(refusal_of_path(folder / std::string(300, 'a')), HasSubstr("name is too long"));
  EXPECT_THAT(refusal_of_path(existing), HasSubstr("it exists; --force replaces it"));
  EXPECT_EQ(refusal_of_path(existing, true), "");
  EXPECT_EQ(content_of(existing), "old");
}

TEST(AtomicFile, AFolderThatTakesNoFilesIsSeenBeforehand) {
  EXPECT_THAT(refusal_of_path("/proc/new.json"), HasSubstr("cannot write /proc/new.json"));
}

TEST(AtomicFile, ReplacesWhatALinkNames) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const auto file = folder.write("file", "old");
  const auto link = folder / "link";
  fs::create_symlink("file", link);
  write_file_atomically(link, "new", true);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(file_text(file), "new");
  EXPECT_THROW(write_file_atomically(link, "newer", false), OutputError);
}

TEST(AtomicFile, ALinkThatLeadsToItselfIsRefused) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("link", folder / "link");
  EXPECT_THAT(refusal_of_path(folder / "link", true), HasSubstr("ymbolic link"));
}

TEST(AtomicFile, FollowsNoLinkOfAnotherUser) {
  namespace fs = std::filesystem;
  if (geteuid() != 0) GTEST_SKIP() << "root alone gives links away";
  const TemporaryFolder folder;
  const auto file = folder.write("own/file", "old");
  const auto link = folder / "link";
  const fs::path targets[] = {file, folder / "own/new", folder / "own", "/dev/null"};
  for (const fs::path& target : targets) {
    fs::remove(link);
    fs::create_symlink(target, link);
    ASSERT_EQ(lchown(link.c_str(), 12345, 12345), 0);
    const fs::path path = fs::is_directory(target) ? link / "file" : link;
    const std::string said = link.string() + " is a link of another user";
    EXPECT_THAT(refusal_of_path(path, true), HasSubstr(said));
    EXPECT_THROW(write_file_atomically(path, "new", true), OutputError);
    EXPECT_EQ(content_of(file), "old");
    EXPECT_FALSE(fs::exists(folder / "own/new"));
  }
  fs::create_symlink("link", folder / "own_link");
  EXPECT_THAT(refusal_of_path(folder / "own_link", true), HasSubstr("link of another user"));
}

TEST(AtomicFile, AnInputIsNoOutput) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "old");
  fs::create_symlink("file", folder / "link");
  const std::string inputs[] = {folder / "none", file};
  EXPECT_NO_THROW(require_no_input(folder / "new", inputs));
  EXPECT_THROW(require_no_input(file, inputs), std::invalid_argument);
  EXPECT_THROW(require_no_input(folder / "link", inputs), std::invalid_argument);
}

}  // namespace
}  // namespace nearmetal
