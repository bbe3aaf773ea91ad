// Preloaded: a system that has no memory, threads or processes left where the environment says so.
//
//   NM_MEMORY_ENDS_AT=N      the Nth call of operator new fails
//   NM_THREADS_END_AT=N      the Nth start of a thread
//   NM_PROCESSES_END_AT=N    the Nth start of a process
//   NM_COMES_BACK=1          and no later one; else each that follows as well
//   NM_COUNT_TO=FILE         a line with the number of calls of operator new is appended at the end
//
// Only calls by nearmetal count and fail: those where the first function on the stack that is not
// of the C++ library lies in the executable or in one of its modules, as a std::string that grows
// there asks within that library. What other libraries do without is theirs, and so is what
// std::filesystem does: that of GCC 12 frees twice a part of a path that it could not copy.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <unistd.h>
#include <unwind.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

long number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::atol(text);
}

const bool is_nearmetal = std::strcmp(program_invocation_short_name, "nearmetal") == 0;
const bool comes_back = number_in("NM_COMES_BACK") != 0;

// Empty: of the executable.
const char* object_at(void* address) {
  dl_find_object found{};
  return _dl_find_object(address, &found) == 0 ? found.dlfo_link_map->l_name : "unknown";
}

// What a function is by the name that the dynamic linker knows. A template of the C++ library may
// lie in the executable, and be called by any library.
enum class Named : std::uintptr_t { not_at_all, other, of_std, of_filesystem };

// Looked up once for each place in the code.
Named name_at(std::uintptr_t address) {
  static std::array<std::atomic<std::uintptr_t>, 1 << 14> known;  // with the answer as last bits
  std::atomic<std::uintptr_t>& place = known[address % known.size()];
  if (place / 4 == address) return static_cast<Named>(place % 4);
  Dl_info found{};
  dladdr(reinterpret_cast<void*>(address), &found);
  const char* const name = found.dli_sname != nullptr ? found.dli_sname : "";
  const auto begins = [name](const char* text) {
    return std::strncmp(name, text, std::strlen(text)) == 0;
  };
  Named is = *name == '\0' ? Named::not_at_all : Named::other;
  if (begins("_ZNSt") || begins("_ZNKSt") || begins("_ZSt")) is = Named::of_std;
  if (std::strstr(name, "filesystem") != nullptr) is = Named::of_filesystem;
  place = address * 4 + static_cast<std::uintptr_t>(is);
  return is;
}

struct Stack {
  int functions = 0;
  bool is_decided = false, is_ours = false;
  bool may_be_std = false;  // the function that decided has no name
};

// The first function that is not of the C++ library decides, where a nameless one that such a
// function calls is part of it; std::filesystem, further up, decides against it.
_Unwind_Reason_Code look_at(_Unwind_Context* frame, void* answer) {
  constexpr int deepest = 10;
  Stack& stack = *static_cast<Stack*>(answer);
  const std::uintptr_t address = _Unwind_GetIP(frame) - 1;
  const char* const object = object_at(reinterpret_cast<void*>(address));
  const bool in_library = std::strstr(object, "/libstdc++.so") != nullptr;
  const Named name = name_at(address);
  if (in_library && name == Named::of_filesystem) {
    stack.is_ours = false;
    return _URC_END_OF_STACK;
  }
  if (in_library || name == Named::of_std) {
    if (stack.may_be_std) stack.is_decided = stack.is_ours = stack.may_be_std = false;
  } else if (stack.is_decided) {
    stack.may_be_std = false;
  } else if (std::strstr(object, "/libexhausted.so") == nullptr) {
    stack.is_decided = true;
    stack.is_ours = *object == '\0' || std::strstr(object, "/libnearmetal_") != nullptr;
    stack.may_be_std = name == Named::not_at_all;
  }
  const bool goes_on = ++stack.functions < deepest && (!stack.is_decided || stack.is_ours);
  return goes_on ? _URC_NO_REASON : _URC_END_OF_STACK;
}

bool is_by_nearmetal() {
  Stack stack;
  if (is_nearmetal) _Unwind_Backtrace(look_at, &stack);
  return stack.is_ours;
}

struct Calls {
  const long end;  // 0: never
  std::atomic<long> made = 0;

  bool next_fails() {
    if (!is_by_nearmetal()) return false;
    const long call = ++made;
    return end > 0 && (comes_back ? call == end : call >= end);
  }
};
Calls allocations{number_in("NM_MEMORY_ENDS_AT")};
Calls threads{number_in("NM_THREADS_END_AT")};
Calls processes{number_in("NM_PROCESSES_END_AT")};

void* memory_of(std::size_t bytes, std::size_t alignment) {
  if (alignment == 0) return std::malloc(bytes > 0 ? bytes : 1);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

// As the standard says it: who set a handler learns of the failure first.
void* allocate(std::size_t bytes, std::size_t alignment = 0) {
  void* const memory = allocations.next_fails() ? nullptr : memory_of(bytes, alignment);
  if (memory != nullptr) return memory;
  if (const std::new_handler handler = std::get_new_handler()) handler();
  throw std::bad_alloc();
}

template <class Function>
Function next_of(const char* name, Function) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

[[gnu::destructor]] void write_count() {
  const char* const file = std::getenv("NM_COUNT_TO");
  if (file == nullptr || !is_nearmetal) return;
  const int out = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  dprintf(out, "%ld\n", allocations.made.load());
  close(out);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*work)(void*), void* argument) noexcept {
  if (threads.next_fails()) return EAGAIN;
  return next_of("pthread_create", pthread_create)(thread, attributes, work, argument);
}

extern "C" pid_t fork() noexcept {
  if (!processes.next_fails()) return next_of("fork", fork)();
  errno = EAGAIN;
  return -1;
}
