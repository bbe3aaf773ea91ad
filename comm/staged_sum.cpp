#include "comm/staged_sum.h"

namespace nearmetal {

void sum_staged(int first, int count, StagedOperations& operations) {
  const int end = first + count;
  for (int bucket = first; bucket < end; ++bucket) operations.share_gradients(bucket);
  operations.tell(Stage::gradients, first);
  operations.await(Stage::gradients, first);
  for (int bucket = first; bucket < end; ++bucket) {
    operations.fetch_gradients(bucket);
    operations.add(bucket);
    operations.share_sums(bucket);
  }
  operations.tell(Stage::sums, first);
  operations.await(Stage::sums, first);
  for (int bucket = first; bucket < end; ++bucket) operations.fetch_sums(bucket);
}

}  // namespace nearmetal
