#include "comm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

#include "base/descriptor.h"

namespace nearmetal {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

Descriptor opened(int number, const std::string& what) {
  if (number < 0) fail(what);
  return Descriptor(number);
}

// Two files never have the same.
std::string identity(const Descriptor& file) {
  struct stat status {};
  if (fstat(file.number(), &status) != 0) fail("shared memory");
  return std::to_string(status.st_dev) + " " + std::to_string(status.st_ino) + " " +
         std::to_string(status.st_size);
}

std::byte* mapped(const Descriptor& file, int64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (memory == MAP_FAILED) fail("no " + std::to_string(bytes) + " bytes of shared memory");
  return static_cast<std::byte*>(memory);
}

}  // namespace

SharedMemory::SharedMemory(World& world, int64_t bytes) : bytes_(bytes) {
  if (world.rank() == 0) {
    const Descriptor file = opened(memfd_create("nearmetal", MFD_CLOEXEC), "no shared memory");
    if (ftruncate(file.number(), bytes) != 0) fail("no shared memory");
    data_ = mapped(file, bytes);
    world.broadcast("/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file.number()));
    world.broadcast(identity(file));
    world.all_gather("opened");
    return;
  }
  const std::string path = world.broadcast(""), wanted = world.broadcast("");
  const std::string what = "no way to the shared memory of rank 0, " + path;
  const Descriptor file = opened(open(path.c_str(), O_RDWR | O_CLOEXEC), what);
  if (identity(file) != wanted) throw std::runtime_error(what + ": it is another file here");
  data_ = mapped(file, bytes);
  world.all_gather("opened");
}

SharedMemory::~SharedMemory() { munmap(data_, bytes_); }

void sum_staged(int first, int count, StagedOperations& operations) {
  const int end = first + count;
  for (int bucket = first; bucket < end; ++bucket) operations.share_gradients(bucket);
  operations.signal(Stage::gradients, first);
  operations.await(Stage::gradients, first);
  for (int bucket = first; bucket < end; ++bucket) {
    operations.fetch_gradients(bucket);
    operations.add(bucket);
    operations.share_sums(bucket);
  }
  operations.signal(Stage::sums, first);
  operations.await(Stage::sums, first);
  for (int bucket = first; bucket < end; ++bucket) operations.fetch_sums(bucket);
}

}  // namespace nearmetal
