#include "comm/mpi/mpi_sums.h"

#include <limits>
#include <memory>
#include <stdexcept>
#include <type_traits>

#include "models/sixteen_bits.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace nearmetal {
namespace {

#if defined(__x86_64__)
// By the processor's own conversions, eight at a time; without them a core sums 1 GB/s, less than
// many a network carries. How many values that took.
__attribute__((target("avx,f16c"))) int add_eights(const void* in, void* in_and_out, int count) {
  const auto* left = static_cast<const Fp16*>(in);
  auto* right = static_cast<Fp16*>(in_and_out);
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    auto* place = reinterpret_cast<__m128i*>(right + i);
    const __m128i more = _mm_loadu_si128(reinterpret_cast<const __m128i*>(left + i));
    const __m256 sum =
        _mm256_add_ps(_mm256_cvtph_ps(more), _mm256_cvtph_ps(_mm_loadu_si128(place)));
    _mm_storeu_si128(place, _mm256_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}

// Clang 14 cannot ask for F16C by name. That the system keeps wide registers shows with AVX2.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") != 0 && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
         (c & bit_F16C) != 0;
}
#endif

// An MPI_User_function: the arguments are what MPI prescribes.
template <class T>
void add_values(void* in, void* in_and_out, int* count, MPI_Datatype*) {
  const T* left = static_cast<const T*>(in);
  T* right = static_cast<T*>(in_and_out);
  int i = 0;
#if defined(__x86_64__)
  static const bool fast = std::is_same_v<T, Fp16> && has_f16c();
  if (fast) i = add_eights(in, in_and_out, *count);
#endif
  for (; i < *count; ++i) right[i] = from_float<T>(to_float(left[i]) + to_float(right[i]));
}

struct Ranks {
  MPI_Comm everyone;
  int rank = 0;
  int size = 1;
};

using Values = std::vector<double>;

// One exchange; `in` and `out` hold as many values as the largest of what the ranks hold.
using Exchange = std::function<void(const Ranks&, const Values& in, Values& out)>;

void ping_pong(const Ranks& ranks, const Values& in, Values& out) {
  const int count = static_cast<int>(in.size()), last = ranks.size - 1;
  if (ranks.rank == 0) {
    NM_MPI(MPI_Send, in.data(), count, MPI_DOUBLE, last, 0, ranks.everyone);
    NM_MPI(MPI_Recv, out.data(), count, MPI_DOUBLE, last, 0, ranks.everyone, MPI_STATUS_IGNORE);
  } else if (ranks.rank == last) {
    NM_MPI(MPI_Recv, out.data(), count, MPI_DOUBLE, 0, 0, ranks.everyone, MPI_STATUS_IGNORE);
    NM_MPI(MPI_Send, out.data(), count, MPI_DOUBLE, 0, 0, ranks.everyone);
  }
}

void all_reduce(const Ranks& ranks, const Values& in, Values& out) {
  NM_MPI(MPI_Allreduce, in.data(), out.data(), static_cast<int>(in.size()), MPI_DOUBLE, MPI_SUM,
         ranks.everyone);
}

void all_gather(const Ranks& ranks, const Values& in, Values& out) {
  const int count = static_cast<int>(in.size()) / ranks.size;
  NM_MPI(MPI_Allgather, in.data(), count, MPI_DOUBLE, out.data(), count, MPI_DOUBLE,
         ranks.everyone);
}

void broadcast(const Ranks& ranks, const Values& in, Values& out) {
  // The first rank's buffer is only read.
  double* buffer = ranks.rank == 0 ? const_cast<double*>(in.data()) : out.data();
  NM_MPI(MPI_Bcast, buffer, static_cast<int>(in.size()), MPI_DOUBLE, 0, ranks.everyone);
}

struct Kind {
  const char* name;
  const char* work;
  Exchange exchange;
  double bus_factor;
  // The last value that this rank must end with; each rank gives its number plus 1.
  double expected;
};

std::vector<Kind> kinds(const Ranks& ranks) {
  const double n = ranks.size;
  const bool plays = ranks.rank == 0 || ranks.rank == ranks.size - 1;
  return {{"ping_pong", "from the first rank to the last and back", ping_pong, 0, plays ? 1.0 : 0},
          {"allreduce", "summed over all ranks", all_reduce, 2 * (n - 1) / n, n * (n + 1) / 2},
          {"allgather", "of all ranks together to each", all_gather, (n - 1) / n, n},
          {"broadcast", "from the first rank to all", broadcast, 1, ranks.rank == 0 ? 0.0 : 1.0}};
}

// The time of the slowest rank, from when all were there: a rank that only sends is through before
// the others.
double slowest_seconds(const Ranks& ranks, const std::function<void()>& work) {
  NM_MPI(MPI_Barrier, ranks.everyone);
  const double begin = MPI_Wtime();
  work();
  double seconds = MPI_Wtime() - begin;
  NM_MPI(MPI_Allreduce, MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, ranks.everyone);
  return seconds;
}

TimedRuns started(const Ranks& ranks, const Kind& kind, int64_t bytes) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(double));
  // So that each rank has something to give to allgather.
  const int64_t whole = (count + ranks.size - 1) / ranks.size * ranks.size;
  const auto in = std::make_shared<Values>(whole, ranks.rank + 1.0);
  const auto out = std::make_shared<Values>(whole, 0.0);
  kind.exchange(ranks, *in, *out);
  if (out->back() != kind.expected) {
    throw std::runtime_error(std::string("MPI: ") + kind.name + " gave " +
                             std::to_string(out->back()) + " instead of " +
                             std::to_string(kind.expected));
  }
  return [ranks, exchange = kind.exchange, in, out](int64_t runs) {
    double seconds = 0;
    for (int64_t run = 0; run < runs; ++run) {
      seconds += slowest_seconds(ranks, [&] { exchange(ranks, *in, *out); });
    }
    return seconds;
  };
}

}  // namespace

CallCounts& MpiCall::counts() {
  static CallCounts counts;
  return counts;
}

void require_mpi(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw std::runtime_error(std::string(what) + " failed: " + text);
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  NM_MPI(MPI_Get_library_version, text, &length);
  const std::string version(text, length);
  return version.substr(0, version.find_first_of(",\n"));
}

int mpi_count(int64_t elements) {
  if (elements <= std::numeric_limits<int>::max()) return static_cast<int>(elements);
  throw std::invalid_argument("a bucket of gradients has more elements than MPI can send: 2^31");
}

MpiSums::MpiSums() {
  constexpr int commutes = 1;
  NM_MPI(MPI_Op_create, add_values<Bf16>, commutes, &bf16_);
  NM_MPI(MPI_Op_create, add_values<Fp16>, commutes, &fp16_);
}

MpiSums::~MpiSums() {
  MPI_Op_free(&bf16_);
  MPI_Op_free(&fp16_);
}

MPI_Datatype MpiSums::type(Precision precision) const {
  return element_bytes(precision) == 2 ? MPI_UINT16_T : MPI_FLOAT;
}

MPI_Op MpiSums::operation(Precision precision) const {
  if (precision == Precision::bf16) return bf16_;
  return precision == Precision::fp16 ? fp16_ : MPI_SUM;
}

std::vector<Probe> mpi_probes(MPI_Comm everyone) {
  Ranks ranks{everyone};
  MPI_Comm_rank(everyone, &ranks.rank);
  MPI_Comm_size(everyone, &ranks.size);
  std::vector<Probe> probes;
  for (const Kind& kind : kinds(ranks)) {
    for (const int64_t bytes : exchanged_bytes) {
      const bool there_and_back = kind.bus_factor == 0;
      probes.push_back({.name = exchange_probe_name("mpi", kind.name, bytes),
                        .work = kind.work,
                        .bytes = static_cast<double>(bytes) * (there_and_back ? 2 : 1),
                        .bus_factor = kind.bus_factor,
                        .start = [=] { return started(ranks, kind, bytes); }});
    }
  }
  return probes;
}

}  // namespace nearmetal
