#include "comm/mpi/mpi_host_sum.h"

namespace nearmetal {

MpiHostSum::MpiHostSum(MPI_Comm everyone, int part) {
  constexpr int in_the_same_order = 0;
  require_mpi(MPI_Comm_split(everyone, part, in_the_same_order, &ranks_), "MPI_Comm_split");
}

MpiHostSum::~MpiHostSum() { MPI_Comm_free(&ranks_); }

void MpiHostSum::sum(const GradientBucket& values) {
  require_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data, mpi_count(values.elements),
                            sums_.type(values.type), sums_.operation(values.type), ranks_),
              "MPI_Allreduce");
}

}  // namespace nearmetal
