// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/weights/weight_source.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/interop/told.h"
#include "tests/interop/weight_files.h"
#include "trireme/interop/weights/gpt2_names.h"

namespace trireme::interop::weight_source_test {
namespace {

using namespace trireme::interop::testing;
using Names = std::vector<std::string>;

const std::vector<Floats> kTwo{{"fc.weight", {2, 3}}, {"fc.bias", {2}, 10}};

WeightSource as_ours(WeightSource source, TiedHead tied = TiedHead::dropped) {
  take_gpt2_names(source, tied, [](const BoxedArray& a, const BoxedArray& b) {
    return ArrayReader().same(a, b);
  });
  return source;
}

TEST(interop_weight_source, a_state_dict_is_found_wherever_training_loops_put_it) {
  const PrivateFolder folder;
  const std::string path = folder / "x.pt";
  for (const std::vector<std::string>& below : std::vector<std::vector<std::string>>{
           {}, {"model"}, {"state_dict"}, {"model_state_dict"}, {"module"}}) {
    write_pt(path, kTwo, below);
    const WeightSource source = open_weights(path);
    EXPECT_EQ(names_of(source), (Names{"fc.bias", "fc.weight"}));
    EXPECT_EQ(floats_of(*source.find("fc.weight")), kTwo[0].values());
    EXPECT_EQ(source.notes.empty(), below.empty());
  }
  // What an optimizer has beside it is left.
  const WeightSource training = open_weights(kFixtures + "training.pt");
  EXPECT_EQ(training.arrays.size(), 9u);
  EXPECT_EQ(training.kind, "a file of torch.save");
  EXPECT_NE(training.find("0.weight"), nullptr);
  EXPECT_SAYS(training.notes.at(0), "the weights are those under 'model'");
}

TEST(interop_weight_source, a_module_that_is_called_model_is_no_container) {
  const PrivateFolder folder;
  write_pt(folder / "x.pt", {{"model.embed.weight", {2}}, {"lm_head.weight", {2}}});
  EXPECT_EQ(names_of(open_weights(folder / "x.pt")),
            (Names{"lm_head.weight", "model.embed.weight"}));
}

TEST(interop_weight_source, wrappers_of_ddp_and_compile_are_taken_off_where_all_have_them) {
  const PrivateFolder folder;
  const std::string path = folder / "x.pt";
  for (const std::string wrapper :
       {"module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."}) {
    write_pt(path, {{wrapper + "a", {1}}, {wrapper + "b", {1}}}, {"model"});
    const WeightSource source = open_weights(path);
    EXPECT_EQ(names_of(source), (Names{"a", "b"})) << wrapper;
    EXPECT_SAYS(source.notes.at(1), "is taken off all names");
  }
  write_pt(path, {{"module.a", {1}}, {"b", {1}}});
  EXPECT_EQ(names_of(open_weights(path)), (Names{"b", "module.a"}));
}

TEST(interop_weight_source, safetensors_files_and_folders_and_old_names_of_files_are_read) {
  const PrivateFolder folder;
  write_bytes(folder / "one.safetensors", safetensors_text(kTwo));
  write_bytes(folder / "no_name", safetensors_text(kTwo));
  for (const char* name : {"one.safetensors", "no_name"}) {
    const WeightSource file = open_weights(folder / name);
    EXPECT_EQ(file.kind, "a safetensors file");
    EXPECT_EQ(floats_of(*file.find("fc.bias")), kTwo[1].values());
  }
  std::filesystem::create_directory(folder / "hf");
  EXPECT_FALSE(is_weight_source(folder / "hf"));
  write_pt(folder / "hf/pytorch_model.bin", kTwo);
  EXPECT_TRUE(is_weight_source(folder / "hf"));
  EXPECT_EQ(open_weights(folder / "hf").arrays.size(), 2u);
  write_bytes(folder / "hf/model.safetensors", safetensors_text({kTwo[0]}));
  EXPECT_EQ(open_weights(folder / "hf").arrays.size(), 1u);
  write_bytes(folder / "hf/latest", "step-00000001\n");
  EXPECT_FALSE(is_weight_source(folder / "hf"));  // a run folder of ours
}

TEST(interop_weight_source,
     half_of_the_files_of_a_model_are_refused_by_the_name_of_the_first_missing) {
  const PrivateFolder folder;
  const auto said = [&](const std::string& of) {
    try {
      open_weights(folder / of);
    } catch (const Corrupt& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  std::filesystem::create_directory(folder / "st");
  const auto shard = [&](int i) {
    return folder / fmt::format("st/model-{:05}-of-00003.safetensors", i);
  };
  write_bytes(shard(1), safetensors_text({kTwo[0]}));
  write_bytes(shard(3), safetensors_text({kTwo[1]}));
  EXPECT_SAYS(said("st"), "model-00002-of-00003.safetensors is not there");
  write_bytes(shard(2), safetensors_text({{"more", {2}}}));
  EXPECT_EQ(open_weights(folder / "st").arrays.size(), 3u) << "without an index, too";

  std::filesystem::create_directory(folder / "bin");
  write_pt(folder / "bin/pytorch_model-00002-of-00002.bin", kTwo);
  EXPECT_TRUE(is_weight_source(folder / "bin"));
  EXPECT_SAYS(said("bin"), "pytorch_model-00001-of-00002.bin is not there");
  write_pt(folder / "bin/pytorch_model-00001-of-00002.bin", kTwo);
  EXPECT_SAYS(said("bin"), "pytorch_model.bin.index.json is not there");
}

TEST(interop_weight_source, the_index_of_pytorch_model_bin_tells_which_file_has_a_tensor) {
  const PrivateFolder folder;
  const std::string one = "pytorch_model-00001-of-00002.bin",
                    two = "pytorch_model-00002-of-00002.bin",
                    index = folder / "pytorch_model.bin.index.json";
  write_pt(folder / one, {kTwo[0], {"old", {3}}});
  write_pt(folder / two, {kTwo[1], {"fc.weight", {2}, 70}});
  const auto write_index = [&](const std::string& map) {
    write_bytes(index, R"({"metadata":{"total_size":32},"weight_map":{)" + map + "}}");
  };
  const auto refused = [&] { return said([&] { open_weights(folder.path()); }); };
  EXPECT_TRUE(is_weight_source(folder.path())) << "so that it is told what is missing";
  EXPECT_SAYS(refused(), "pytorch_model.bin.index.json is not there: fetch that file too");
  write_index(R"("fc.weight":")" + one + R"(","fc.bias":")" + two + "\"");
  EXPECT_TRUE(is_weight_source(folder.path()));
  const WeightSource source = open_weights(folder.path());
  EXPECT_EQ(source.kind, "a folder of files of torch.save");
  EXPECT_EQ(names_of(source), (Names{"fc.bias", "fc.weight"}));
  for (const Floats& t : kTwo) {
    EXPECT_EQ(source.find(t.name)->array.shape, t.shape);
    EXPECT_EQ(floats_of(*source.find(t.name)), t.values());
  }
  EXPECT_SAYS(described(*source.find("fc.bias")), folder / two + ": tensor 'fc.bias'");

  write_index(R"("fc.weight":")" + one + R"(","more":")" + two + "\"");
  EXPECT_SAYS(refused(), "Corrupt: " + index + ": tensor 'more' is not in " + two);
  write_index(R"("fc.weight":")" + one + R"(","more":"pytorch_model-00003-of-00003.bin")");
  EXPECT_SAYS(refused(), index +
                             " names pytorch_model-00003-of-00003.bin, which is not there: "
                             "fetch that file too");
  write_index(R"("fc.weight":"../)" + one + "\"");
  EXPECT_SAYS(refused(),
              "Corrupt: " + index + ": names a file '../" + one + "', which is not in its folder");
  write_index(R"("fc.weight":")" + one + R"(","fc.weight":")" + two + "\"");
  EXPECT_SAYS(refused(), "Corrupt: " + index);
  write_index("");
  EXPECT_SAYS(refused(), folder.path() + " holds no tensors");
  for (const std::string text :
       {R"({"weight_map":[]})", R"({"weight_map":{"a":1}})", "{}", "", "{"})
    EXPECT_SAYS((write_bytes(index, text), refused()), "Corrupt: " + index);
  write_bytes(index,
              R"({"weight_map":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}");
  EXPECT_SAYS(refused(), "Corrupt: " + index);
  // What is newer is taken before it.
  write_pt(folder / "pytorch_model.bin", {kTwo[0]});
  EXPECT_EQ(open_weights(folder.path()).arrays.size(), 1u);
}

TEST(interop_weight_source, a_part_of_a_strided_tensor_is_read_as_of_the_whole) {
  const PrivateFolder folder;
  Tree tree;
  tree.root = tree.dict();
  tree.set(tree.root, "w", tree.array("I16", {3, 4, 5}));
  tree.arrays[0].shape = {5, 3, 1, 4};
  tree.arrays[0].strides = {1, 20, 7, 5};
  std::vector<int16_t> values(60);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int16_t>(i);
  write_torch_file(folder / "x.pt", tree, [&](size_t) -> std::span<const uint8_t> {
    return {reinterpret_cast<const uint8_t*>(values.data()), 120};
  });
  const WeightSource source = open_weights(folder / "x.pt");
  const NamedArray& box = source.find("w")->array.boxes[0].at;
  ArrayReader reader;
  const auto elements = reader.elements(box);
  const std::vector<uint8_t> whole(elements.begin(), elements.end());
  EXPECT_EQ(whole[2 * 13], 6);  // element [1, 0, 0, 1]
  for (size_t at = 0; at < 120; at += 2)
    for (size_t size = 0; at + size <= 120; size += 2) {
      std::vector<uint8_t> part(size);
      copy_range(box, reader.file_of(box), at, part);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<long>(at)))
          << at << " " << size;
    }
}

TEST(interop_weight_source, tensors_are_the_same_where_their_elements_are_however_they_lie) {
  const PrivateFolder folder;
  Tree tree;
  tree.root = tree.dict();
  for (const char* name : {"plain", "turned", "other"})
    tree.set(tree.root, name, tree.array("F32", {600, 700}));
  tree.arrays[1].strides = {1, 600};
  std::vector<float> values(600 * 700);
  write_torch_file(folder / "x.pt", tree, [&](size_t storage) -> std::span<const uint8_t> {
    for (size_t i = 0; i < values.size(); ++i)
      values[storage == 1 ? i % 700 * 600 + i / 700 : i] = static_cast<float>(i);
    if (storage == 2) values.back() = -1;
    return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)};
  });
  const WeightSource source = open_weights(folder / "x.pt");
  ArrayReader reader;
  const auto& plain = source.find("plain")->array;
  EXPECT_TRUE(reader.same(plain, source.find("turned")->array));
  EXPECT_TRUE(reader.same(source.find("turned")->array, plain));
  EXPECT_TRUE(reader.same(plain, plain));
  EXPECT_FALSE(reader.same(plain, source.find("other")->array));
  EXPECT_FALSE(reader.same(source.find("turned")->array, source.find("other")->array));
}

TEST(interop_weight_source, archives_of_cpp_and_folders_of_dcp_are_read) {
  const WeightSource module = open_weights(kFixtures + "cpp_module.pt");
  EXPECT_EQ(module.kind, "an archive of LibTorch");
  EXPECT_NE(module.find("1.running_mean"), nullptr);
  const WeightSource dcp = open_weights(kFixtures + "dcp");
  EXPECT_EQ(names_of(dcp), (Names{"fc.bias", "fc.weight", "turned"}));  // without 'step'
  const auto expected = told(kFixtures + "dcp.json")["tensors"];
  for (const SourceArray& a : dcp.arrays) {
    ArrayReader reader;
    reader.verify(a.array);
    EXPECT_EQ(hex_of(reader.elements(a.array)), expected["model." + a.array.name]["hex"])
        << a.array.name;
  }
}

// Of tests/interop/dcp_2x.py, on the PyTorch that dcp_2x.json names.
TEST(interop_weight_source, both_kinds_of_folders_of_todays_dcp_are_read_to_the_bit) {
  const auto expected = told(kFixtures + "dcp_2x.json");
  EXPECT_EQ(expected["torch"], "2.14.1+debian");
  for (const char* kind : {"dcp_2x", "dcp_hf"}) {
    const WeightSource source = open_weights(kFixtures + kind);
    ASSERT_EQ(source.arrays.size(), expected["tensors"].size());
    for (const SourceArray& a : source.arrays) {
      const auto& tensor = expected["tensors"][a.array.name];
      EXPECT_EQ(a.array.dtype, tensor["dtype"]) << kind;
      EXPECT_EQ(a.array.shape, tensor["shape"].get<std::vector<int64_t>>()) << kind;
      ArrayReader reader;
      reader.verify(a.array);
      EXPECT_EQ(hex_of(reader.elements(a.array)), tensor["hex"]) << kind << a.array.name;
    }
    EXPECT_EQ(source.find("model.fc.weight")->array.boxes.size(), 2u) << kind;
  }
}

TEST(interop_weight_source, what_is_no_weights_is_refused_in_a_sentence) {
  const PrivateFolder folder;
  write_bytes(folder / "notes.txt", "hello, these are no weights");
  EXPECT_SAYS(said([&] { open_weights(folder / "notes.txt"); }),
              "is neither a file of torch.save nor a safetensors file: give the file or folder");
  write_bytes(folder / "empty.safetensors", "");
  EXPECT_SAYS(said([&] { open_weights(folder / "empty.safetensors"); }), "too few for a safetens");
  EXPECT_SAYS(said([&] { open_weights(kFixtures + "old.pt"); }), "before PyTorch 1.6");
  EXPECT_SAYS(said([&] { open_weights(folder / "nothing"); }), "does not exist");
  write_pt(folder / "none.pt", {});
  EXPECT_SAYS(said([&] { open_weights(folder / "none.pt"); }), "holds no tensors");
  write_pt(folder / "x.pt", kTwo);
  WeightSource source = open_weights(folder / "x.pt");
  EXPECT_SAYS(said([&] { rename_prefix(source, "net.", ""); }),
              "has no tensor whose name begins with 'net.'");
  EXPECT_SAYS(said([&] { rename_prefix(source, "fc.weight", "fc.bias"); }),
              "would both have the name 'fc.bias'");
}

TEST(interop_weight_source, bytes_that_do_not_fit_their_checksum_are_not_taken) {
  const PrivateFolder folder;
  write_pt(folder / "x.pt", kTwo);
  std::string bytes = read_file(folder / "x.pt");
  bytes[bytes.find(kTwo[0].bytes()) + 5] ^= 4;
  write_bytes(folder / "x.pt", bytes);
  const WeightSource source = open_weights(folder / "x.pt");
  EXPECT_EQ(floats_of(*source.find("fc.bias")), kTwo[1].values());
  EXPECT_SAYS(said([&] { floats_of(*source.find("fc.weight")); }),
              "x.pt: the bytes of tensor 'fc.weight' do not fit their checksum");
}

TEST(interop_weight_source, names_of_gpt2_become_ours_and_its_matrices_are_turned) {
  const PrivateFolder folder;
  for (const std::string prefix : {"transformer.", "", "gpt.transformer."}) {
    write_bytes(folder / "x.safetensors", safetensors_text(small_gpt2(prefix)));
    WeightSource source = open_weights(folder / "x.safetensors");
    ASSERT_TRUE(has_gpt2_names(source));
    source = as_ours(std::move(source));
    EXPECT_EQ(source.arrays.size(), 28u);
    const SourceArray* qkv = source.find("blocks.1.attn.qkv.weight");
    ASSERT_NE(qkv, nullptr) << prefix;
    EXPECT_EQ(qkv->array.shape, (std::vector<int64_t>{6, 2}));
    EXPECT_EQ(floats_of(*qkv),
              (std::vector<float>{204, 210, 205, 211, 206, 212, 207, 213, 208, 214, 209, 215}));
    EXPECT_SAYS(described(*qkv), "(there '" + prefix + "h.1.attn.c_attn.weight', transposed)");
    EXPECT_EQ(floats_of(*source.find("wpe.weight")).front(), 50);
    EXPECT_EQ(floats_of(*source.find("blocks.0.mlp.down.bias")), (std::vector<float>{172, 173}));
  }
  EXPECT_FALSE(has_gpt2_names(open_weights(kFixtures + "training.pt")));
}

TEST(interop_weight_source, every_name_of_a_gpt2_goes_there_and_back) {
  for (const Floats& t : small_gpt2()) {
    const auto ours = name_of_gpt2(t.name);
    ASSERT_TRUE(ours.has_value()) << t.name;
    const auto back = gpt2_name(ours->name);
    ASSERT_TRUE(back.has_value()) << ours->name;
    EXPECT_EQ(back->name, t.name);
    EXPECT_EQ(back->transposed, ours->transposed);
    EXPECT_EQ(ours->transposed, t.shape.size() == 2 && t.name.find(".h.") != t.name.npos) << t.name;
  }
  EXPECT_EQ(gpt2_name("head.weight")->name, "lm_head.weight");
  for (const char* other : {"fc.weight", "blocks.x.ln1.weight", "blocks.0.ln1", "blocks..ln1.bias"})
    EXPECT_FALSE(gpt2_name(other).has_value()) << other;
}

TEST(interop_weight_source, a_tied_head_is_dropped_or_copied_and_masks_are_left) {
  const PrivateFolder folder;
  auto tensors = small_gpt2();
  write_bytes(folder / "x.safetensors", safetensors_text(tensors));
  EXPECT_EQ(as_ours(open_weights(folder / "x.safetensors")).find("head.weight"), nullptr);
  const WeightSource copied = as_ours(open_weights(folder / "x.safetensors"), TiedHead::copied);
  ASSERT_NE(copied.find("head.weight"), nullptr);
  EXPECT_EQ(floats_of(*copied.find("head.weight")), tensors[0].values());

  tensors.push_back({"lm_head.weight", {5, 2}});
  tensors.push_back({"transformer.h.0.attn.bias", {1, 1, 4, 4}});
  tensors.push_back({"transformer.h.0.attn.masked_bias", {}});
  write_bytes(folder / "x.safetensors", safetensors_text(tensors));
  const WeightSource equal = as_ours(open_weights(folder / "x.safetensors"));
  EXPECT_EQ(equal.find("head.weight"), nullptr);
  EXPECT_EQ(equal.arrays.size(), 28u);
  EXPECT_SAYS(equal.notes.at(0), "2 masks were left");
  tensors[28].first = 1;  // another head
  write_bytes(folder / "x.safetensors", safetensors_text(tensors));
  EXPECT_NE(as_ours(open_weights(folder / "x.safetensors")).find("head.weight"), nullptr);
}

}  // namespace
}  // namespace trireme::interop::weight_source_test
