// SPDX-License-Identifier: Apache-2.0
// Both ways with the PyTorch for Python that is installed; skipped without one.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "tests/interop/pickles.h"
#include "tests/interop/told.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "trireme/interop/array_folder.h"

namespace trireme::interop::python_test {
namespace {

using namespace trireme::interop::testing;
using trireme::testing::Command;

constexpr int kWithout = 77;

TEST(interop_python, what_the_installed_pytorch_saves_is_read_to_the_bit) {
  const PrivateFolder folder;
  Command python({"/usr/bin/python3",
                  trireme::testing::source_path("/tests/interop/make_fixtures.py"), folder.path()});
  const int status = python.finish(std::chrono::seconds(240));
  if (status == kWithout) GTEST_SKIP() << "python3-torch is not installed";
  ASSERT_EQ(status, 0) << python.err;
  for (const char* name : {"every_dtype", "views", "training", "single", "protocol_5"}) {
    SCOPED_TRACE(name);
    const TorchFile file(folder / (std::string(name) + ".pt"));
    expect_as_told(file, told(folder / (std::string(name) + ".json")));
    file.verify();
  }
  expect_as_told(TorchFile(folder / "script.pt"), told(folder / "script.json"), false);
  if (!std::filesystem::exists(folder / "dcp")) return;  // built without torch.distributed
  const auto expected = told(folder / "dcp.json");
  const ArrayFolder found = read_array_folder(folder / "dcp");
  ASSERT_EQ(found.arrays.size(), expected["tensors"].size());
  for (const BoxedArray& array : found.arrays) {
    std::string hex;
    for (const Box& box : array.boxes) hex += hex_of(box.at);
    EXPECT_EQ(hex, expected["tensors"][array.name]["hex"].get<std::string>()) << array.name;
  }
}

// PyTorch 1.13's weights_only takes no float, a gap that later versions closed: the optimizer's
// file is loaded without it there.
constexpr const char* kLoad = R"(
import sys, zipfile
try:
    import torch
except ImportError:
    sys.exit(77)
assert zipfile.ZipFile(sys.argv[1]).testzip() is None
weights = torch.load(sys.argv[1], weights_only=True)
net = torch.nn.Linear(3, 2)
net.load_state_dict({"weight": weights["weight"], "bias": weights["bias"]})
assert torch.equal(net.weight, torch.arange(6.).view(2, 3)), net.weight
assert weights["turned"].data_ptr() == weights["weight"].data_ptr()
assert torch.equal(weights["turned"], torch.arange(6.).view(2, 3).t())
for name, dtype in {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
                    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
                    "U8": torch.uint8, "BOOL": torch.bool}.items():
    tensor = weights["of " + name]
    assert tensor.dtype == dtype and tensor.shape == (2,), name
    assert tensor.view(torch.uint8).sum() == 0
assert weights["scalar"].shape == () and weights["scalar"].item() == 0
assert weights["empty"].shape == (0, 4)
try:
    saved = torch.load(sys.argv[2], weights_only=True)
except Exception:
    saved = torch.load(sys.argv[2])
optimizer = torch.optim.AdamW(net.parameters())
optimizer.load_state_dict(saved["optimizer"])
assert optimizer.param_groups[0]["lr"] == 0.01 and optimizer.param_groups[0]["betas"] == (0.9, 0.999)
assert torch.equal(optimizer.state[net.weight]["exp_avg"], torch.arange(6.).view(2, 3))
assert saved["note"] == "π" and saved["large"] == -(1 << 40) and saved["none"] is None and saved["dtype"] is torch.bfloat16
print("loaded")
)";

NodeId moments(Tree& tree, std::vector<int64_t> shape) {
  const NodeId state = tree.dict();
  tree.set(state, "step", tree.array("F32", {}));
  tree.set(state, "exp_avg", tree.array("F32", shape));
  tree.set(state, "exp_avg_sq", tree.array("F32", std::move(shape)));
  return state;
}

TEST(interop_python, what_we_write_is_loaded_by_the_installed_pytorch) {
  const PrivateFolder folder;
  const std::vector<float> six{0, 1, 2, 3, 4, 5};
  const std::vector<uint8_t> zeros(64);
  const auto bytes_in = [&](const Tree& tree) {
    return [&](size_t storage) -> std::span<const uint8_t> {
      const size_t size = tree.storages[storage].bytes;
      if (size == 24) return {reinterpret_cast<const uint8_t*>(six.data()), 24};
      return std::span<const uint8_t>(zeros).first(size);
    };
  };
  Tree weights;
  weights.root = weights.ordered_dict();
  weights.set(weights.root, "weight", weights.array("F32", {2, 3}));
  weights.set(weights.root, "bias", weights.array("F32", {2}));
  weights.set(weights.root, "turned",
              weights.array(
                  {.dtype = "F32", .shape = {3, 2}, .strides = {1, 3}, .offset = 0, .storage = 0}));
  for (const char* dtype : {"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL"})
    weights.set(weights.root, std::string("of ") + dtype, weights.array(dtype, {2}));
  weights.set(weights.root, "scalar", weights.array("F32", {}));
  weights.set(weights.root, "empty", weights.array("F32", {0, 4}));
  write_torch_file(folder / "weights.pt", weights, bytes_in(weights));

  Tree saved;
  const NodeId state = saved.dict(), group = saved.dict(), optimizer = saved.dict();
  saved.set(state, saved.integer(0), moments(saved, {2, 3}));
  saved.set(state, saved.integer(1), moments(saved, {2}));
  saved.set(group, "lr", saved.real(0.01));
  saved.set(group, "betas", saved.tuple({saved.real(0.9), saved.real(0.999)}));
  saved.set(group, "eps", saved.real(1e-8));
  saved.set(group, "weight_decay", saved.real(0.01));
  saved.set(group, "amsgrad", saved.boolean(false));
  saved.set(group, "params", saved.list({saved.integer(0), saved.integer(1)}));
  saved.set(optimizer, "state", state);
  saved.set(optimizer, "param_groups", saved.list({group}));
  saved.root = saved.dict();
  saved.set(saved.root, "optimizer", optimizer);
  saved.set(saved.root, "note", saved.text("π"));
  saved.set(saved.root, "large", saved.integer(-(int64_t{1} << 40)));
  saved.set(saved.root, "none", saved.none());
  saved.set(saved.root, "dtype", saved.add({.kind = Kind::symbol, .text = "torch.bfloat16"}));
  write_torch_file(folder / "saved.pt", saved, bytes_in(saved));

  Command python({"/usr/bin/python3", "-c", kLoad, folder / "weights.pt", folder / "saved.pt"});
  const int status = python.finish(std::chrono::seconds(180));
  if (status == kWithout) GTEST_SKIP() << "python3-torch is not installed";
  ASSERT_EQ(status, 0) << python.err;
  EXPECT_EQ(python.out, "loaded\n");
}

// Python's zipfile, which every python3 has, reads zip64 fields that we write and writes archives
// that we read.
TEST(interop_python, zip_archives_go_both_ways) {
  const PrivateFolder folder;
  Command python({"/usr/bin/python3", "-c", R"(
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as out:
    out.writestr("archive/version", "3\n")
    with out.open("archive/data.pkl", "w", force_zip64=True) as record:
        record.write(b"\x80\x02K\x07.")
)",
                  folder / "python.pt"});
  const int status = python.finish(std::chrono::seconds(60));
  if (status == 127) GTEST_SKIP() << "no python3";
  ASSERT_EQ(status, 0) << python.err;
  const TorchFile file(folder / "python.pt");
  EXPECT_EQ(file.tree()[file.tree().root].integer, 7);
}

}  // namespace
}  // namespace trireme::interop::python_test
