#include "comm/mpi_sums.h"

#include <limits>
#include <stdexcept>

#include "models/sixteen_bits.h"

namespace nearmetal {
namespace {

// An MPI_User_function: the arguments are what MPI prescribes.
template <class T>
void add_values(void* in, void* in_and_out, int* count, MPI_Datatype*) {
  const T* left = static_cast<const T*>(in);
  T* right = static_cast<T*>(in_and_out);
  for (int i = 0; i < *count; ++i) right[i] = from_float<T>(to_float(left[i]) + to_float(right[i]));
}

}  // namespace

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
  require_mpi(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  const std::string version(text, length);
  return version.substr(0, version.find_first_of(",\n"));
}

int mpi_count(int64_t elements) {
  if (elements <= std::numeric_limits<int>::max()) return static_cast<int>(elements);
  throw std::invalid_argument("a bucket of gradients has more elements than MPI can send: 2^31");
}

MpiSums::MpiSums() {
  constexpr int commutes = 1;
  require_mpi(MPI_Op_create(add_values<Bf16>, commutes, &bf16_), "MPI_Op_create");
  require_mpi(MPI_Op_create(add_values<Fp16>, commutes, &fp16_), "MPI_Op_create");
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

}  // namespace nearmetal
