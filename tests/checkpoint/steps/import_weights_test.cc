// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/exchange/import_weights.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/interop/told.h"
#include "tests/interop/weight_files.h"
#include "tests/support/refusals.h"
#include "trireme/base/check.h"
#include "trireme/base/file/file_faults.h"
#include "trireme/checkpoint/steps/step_reader.h"
#include "trireme/checkpoint/steps/verify_step.h"

namespace trireme::test::import_weights_test {
namespace {

namespace fs = std::filesystem;
using namespace trireme::interop;
using namespace trireme::interop::testing;
using trireme::testing::has;

/// Every tensor of the step, to the bit, is the one of the source; each checksum fits.
void expect_imported(const ImportedStep& imported, const WeightSource& source) {
  EXPECT_TRUE(verify_step(imported.folder).good());
  StepReader step(imported.folder);
  ASSERT_EQ(step.index().tensors.size(), source.arrays.size());
  uint64_t bytes = 0;
  for (const SourceArray& a : source.arrays) {
    const std::string name = "model." + a.array.name;
    ASSERT_EQ(step.index().tensors.count(name), 1u) << name;
    const IndexTensor& tensor = step.index().tensors.at(name);
    EXPECT_EQ(tensor.dtype, a.array.dtype);
    EXPECT_EQ(tensor.shape(), a.array.shape);
    ArrayReader reader;
    const auto expected = reader.elements(a.array);
    const auto got = step.read(name, 0, element_count(a.array.shape));
    EXPECT_EQ(hex_of(got), hex_of(expected)) << name;
    bytes += expected.size();
  }
  EXPECT_EQ(imported.bytes, bytes);
}

TEST(checkpoint_steps_import, whatever_python_saved_becomes_a_good_step) {
  for (const char* name : {"every_dtype.pt", "views.pt", "training.pt", "script.pt",
                           "cpp_module.pt", "cpp_list.pt", "single.pt", "dcp"}) {
    SCOPED_TRACE(name);
    PrivateFolder run;
    const WeightSource source = open_weights(kFixtures + name);
    const ImportedStep step = import_weights(source, run / "run", 0);
    EXPECT_EQ(step.folder, run / "run/step-00000000");
    EXPECT_EQ(read_file(run / "run/latest"), "step-00000000\n");
    expect_imported(step, source);
  }
}

TEST(checkpoint_steps_import, tensors_of_more_than_a_block_and_in_boxes_are_whole) {
  PrivateFolder folder;
  const Floats large{"large", {700, 1000}};
  write_bytes(folder / "x.safetensors", safetensors_text({large, {"empty", {0, 3}}, {"s", {}}}));
  WeightSource source = open_weights(folder / "x.safetensors");
  const ImportedStep step = import_weights(source, folder / "run", 0);
  expect_imported(step, source);
  EXPECT_EQ(StepReader(step.folder).index().tensors.at("model.large").parts[0].blocks.size(), 3u);
}

TEST(checkpoint_steps_import, other_steps_stay_and_one_of_its_number_is_replaced) {
  PrivateFolder folder;
  for (int64_t step : {3, 4, 5})
    write_test_step(folder / "run", step, {{"model.w", "F32", {1}, counted(1)}});
  write_pt(folder / "x.pt", {{"w", {2}, 7}});
  import_weights(open_weights(folder / "x.pt"), folder / "run", 4);
  EXPECT_EQ(list_steps(folder / "run"), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(find_checkpoint(folder / "run"), folder / "run/step-00000004");
  EXPECT_EQ(StepReader(folder / "run/step-00000004").index().tensors.at("model.w").shape(),
            std::vector<int64_t>{2});
}

TEST(checkpoint_steps_import, damage_and_a_full_disk_leave_the_folder_as_it_was) {
  PrivateFolder folder;
  write_pt(folder / "x.pt", {{"w", {2}, 7}});
  const WeightSource good = open_weights(folder / "x.pt");
  for (const char* kind : {"pwrite", "fsync", "mkdir", "rename"}) {
    set_file_faults(std::string("only=/run,") + kind + ":ENOSPC");
    EXPECT_THROW(import_weights(good, folder / "run", 0), ResourceError) << kind;
    set_file_faults("");
    EXPECT_TRUE(list_steps(folder / "run").empty());
    if (fs::exists(folder / "run")) {
      EXPECT_EQ(std::distance(fs::directory_iterator(folder / "run"), {}), 0) << kind;
    }
  }
  std::string bytes = read_file(folder / "x.pt");
  bytes[bytes.find(Floats{"w", {2}, 7}.bytes())] ^= 1;
  write_bytes(folder / "x.pt", bytes);
  EXPECT_SAYS(said([&] { import_weights(open_weights(folder / "x.pt"), folder / "run", 0); }),
              "x.pt: the bytes of tensor 'w' do not fit their checksum");
  EXPECT_TRUE(list_steps(folder / "run").empty());
}

}  // namespace
}  // namespace trireme::test::import_weights_test
