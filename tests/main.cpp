/// main() of the test programs: 77, which ctest reports as skipped, where nothing failed but a test
/// could not run (no data, no GPU, no rights), so that it never counts as passed.
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  if (status != 0) return status;
  return testing::UnitTest::GetInstance()->skipped_test_count() > 0 ? kSkipped : 0;
}
