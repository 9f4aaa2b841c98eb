// SPDX-License-Identifier: Apache-2.0
// The unpickler: what it reads, and that nothing outside its list is made or called.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/interop/pickles.h"
#include "trireme/base/file.h"
#include "trireme/interop/pickle/pickle_names.h"
#include "trireme/interop/pickle/pickle_reader.h"
#include "trireme/interop/pickle/pickle_writer.h"

namespace trireme::interop::pickle_test {
namespace {

using namespace trireme::interop::testing;

Tree read(const std::string& bytes) { return read_pickle(bytes_of(bytes), "x.pt"); }
std::string refused(const std::string& bytes) {
  return said([&] { read(bytes); });
}

TEST(interop_pickle, plain_values_are_read) {
  const Tree tree = read(pickle(dict(text("a") + whole(-7) + text("b") + "G\x3f\xf8" +
                                     std::string(6, '\0') + text("c") + "N" + text("d") + "\x88" +
                                     text("e") + "\x8a\x05" + little(1, 4) + "\xff" + text("f") +
                                     "](K\x01M\x02\x01"
                                     "e" +
                                     whole(3) + "K\x04\x85")));
  ASSERT_EQ(tree[tree.root].kind, Kind::dict);
  EXPECT_EQ(tree[*tree.find(tree.root, "a")].integer, -7);
  EXPECT_EQ(tree[*tree.find(tree.root, "b")].real, 1.5);
  EXPECT_EQ(tree[*tree.find(tree.root, "c")].kind, Kind::none);
  EXPECT_EQ(tree[*tree.find(tree.root, "d")].kind, Kind::boolean);
  EXPECT_EQ(tree[*tree.find(tree.root, "e")].integer, 1 - (int64_t{1} << 32));
  const Node& list = tree[*tree.find(tree.root, "f")];
  ASSERT_EQ(list.items.size(), 2u);
  EXPECT_EQ(tree[list.items[1]].integer, 258);
  const Node& last_key = tree[tree[tree.root].items[12]];
  EXPECT_EQ(last_key.integer, 3);
  EXPECT_FALSE(tree.find(tree.root, "g").has_value());
}

TEST(interop_pickle, a_value_remembered_is_the_same_value) {
  const Tree tree =
      read(pickle("](]q\x05K\x01"
                  "ah\x05"
                  "e"));
  const auto& items = tree[tree.root].items;
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0], items[1]);
}

// One for each way in which a pickle names what it wants made or called.
TEST(interop_pickle, every_way_to_call_os_system_is_refused_by_name) {
  const PrivateFolder folder;
  const std::string command = text("touch " + (folder / "owned"));
  const std::string by_stack = "\x80\x04\x8c\x02os\x8c\x06system\x93" + command + "\x85R.";
  for (const std::string& bytes :
       {pickle(global("os", "system") + tuple(command) + "R"), by_stack,
        pickle("(" + command + "ios\nsystem\n"),
        pickle("(" + global("os", "system") + command + "o"),
        pickle(global("os", "system") + tuple(command) + "\x81"),
        pickle(global("os", "system") + tuple(command) + "}\x92"),
        pickle(global("os", "system") + dict(text("x") + "N") + "b"),
        pickle(dict(text("w") + global("os", "system") + tuple(command) + "R"))}) {
    EXPECT_SAYS(refused(bytes),
                "UsageError: x.pt: refuses os.system: it reads tensors and plain values");
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "owned"));
}

TEST(interop_pickle, what_attacks_are_made_of_is_refused) {
  for (const auto& [module, name] : std::vector<std::pair<std::string, std::string>>{
           {"builtins", "eval"},
           {"builtins", "exec"},
           {"__builtin__", "getattr"},
           {"builtins", "__import__"},
           {"subprocess", "Popen"},
           {"posix", "system"},
           {"nt", "system"},
           {"torch", "load"},
           {"torch.storage", "_load_from_bytes"},
           {"torch.hub", "load"},
           {"numpy.core.multiarray", "_reconstruct"},
           {"argparse", "Namespace"},
           {"collections", "defaultdict"},
           {"functools", "partial"},
           {"torch", "os.system"},
           {"torch", "float.x"},
           {"torch.FloatStorage", "from_file"},
           {"collections", "OrderedDict.fromkeys"},
           {"torch._utils", "_rebuild_tensor_v2.x"},
           {"torch.jit._pickle", "build_tensor_from_id"},
           {"__torch", "x"},
           {"__torch__x", "y"}}) {
    EXPECT_SAYS(refused(pickle(global(module, name))),
                "UsageError: x.pt: refuses " + module + "." + name + ":");
    EXPECT_EQ(meaning_of(module, name), Meaning::refused);
  }
}

TEST(interop_pickle, getattr_is_taken_for_values_of_enums_alone) {
  const std::string encoding =
      global("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING");
  const Tree tree = read(pickle(global("builtins", "getattr") +
                                tuple(encoding + text("TORCH_CONTIGUOUS_FORMAT")) + "R"));
  EXPECT_EQ(tree[tree.root].text, "TORCH_CONTIGUOUS_FORMAT");
  for (const std::string& of : {global("collections", "OrderedDict"), global("torch", "Size"),
                                text("x"), global("__torch__", "M")})
    EXPECT_SAYS(
        refused(pickle(global("builtins", "getattr") + tuple(of + text("__class__")) + "R")),
        "UsageError: x.pt: refuses to call builtins.getattr on ");
}

TEST(interop_pickle, a_listed_name_in_another_role_is_refused) {
  // A class of data is not called, a function makes no instance, and only data have a state.
  EXPECT_SAYS(refused(pickle(global("torch.distributed.checkpoint.metadata", "Metadata") + ")R")),
              "refuses to call torch.distributed.checkpoint.metadata.Metadata");
  EXPECT_SAYS(refused(pickle(global("torch", "device") + ")\x81")),
              "refuses to make an instance of torch.device");
  EXPECT_SAYS(refused(pickle(global("torch", "Size") + "}b")),
              "refuses to set the state of torch.Size");
  EXPECT_SAYS(refused(pickle("}}b")), "refuses to set the state of a dict");
  EXPECT_SAYS(refused(pickle(text("os") + ")R")), "refuses to call 'os'");
  EXPECT_SAYS(refused(pickle(object("__torch__", "M", "") + "}b")), "is given two states");
  EXPECT_SAYS(refused(pickle(text("1") + "Q")), "for the description of a storage");
  EXPECT_SAYS(refused(pickle(
                  tuple(text("storage") + text("os") + text("0") + text("cpu") + whole(1)) + "Q")),
              "for the class of a storage");
}

TEST(interop_pickle, opcodes_that_torch_does_not_use_are_refused) {
  for (const std::string& body :
       {std::string("\x82\x01"), std::string("\x83\x01\x02"), std::string("\x84\x01\x02\x03\x04")})
    EXPECT_SAYS(refused(pickle(body)), "Python's registry of extensions");
  EXPECT_SAYS(refused(pickle("P0\n")), "PERSID");
  EXPECT_SAYS(refused(pickle("(" + global("torch", "Size") + "o")), "OBJ");
  EXPECT_SAYS(refused(pickle("I1\n")), "opcode 0x49 at byte 2 is none that torch's files use");
  EXPECT_SAYS(refused("\x80\x06N."), "protocol 6");
  EXPECT_SAYS(refused("(dp0\n."), "is no pickle of protocol 2 or later");
}

TEST(interop_pickle, values_in_each_other_and_too_deep_are_refused) {
  EXPECT_SAYS(refused(pickle("]q\x01h\x01"
                             "a")),
              "Corrupt: x.pt: a list holds itself");
  EXPECT_SAYS(refused(pickle("}q\x01]q\x02h\x01"
                             "ah\x02s")),
              "");
  EXPECT_SAYS(refused(pickle("}q\x01" + text("k") +
                             "]q\x02h\x01"
                             "as")),
              "holds itself");
  const auto nested = [](int depth) {
    return pickle(std::string(static_cast<size_t>(depth), ']') +
                  std::string(static_cast<size_t>(depth - 1), 'a'));
  };
  EXPECT_EQ(refused(nested(100)), "");
  EXPECT_SAYS(refused(nested(102)), "nested more than 100 deep");
  EXPECT_SAYS(refused(nested(1000000)), "nested more than 100 deep");
  EXPECT_SAYS(refused(pickle(std::string(1001, '('))), "groups nested more than 1000 deep");
  // Deep through what is shared: each half is 60 deep, and they are joined when both are known.
  std::string shared = "](" + std::string(60, ']') + "q\x01" + std::string(59, 'a') + "q\x02" +
                       std::string(60, ']') + "h\x02" + std::string(60, 'a') + "e";
  EXPECT_SAYS(refused(pickle(shared)), "nested more than 100 deep");
}

TEST(interop_pickle, a_tree_with_very_many_paths_costs_no_more_than_its_nodes) {
  // 90 tuples, each twice in the next: 2^90 paths.
  std::string body = "]";
  for (char i = 0; i < 90; ++i) body += std::string("q") + i + "h" + i + "\x86";
  EXPECT_EQ(refused(pickle(body)), "");
}

TEST(interop_pickle, lengths_that_are_not_there_are_refused_before_they_cost_memory) {
  for (const std::string& body :
       {"X" + little(0xFFFFFFFF, 4), "\x8d" + little(UINT64_MAX, 8),
        "\x8e" + little(uint64_t{1} << 62, 8), "B" + little(0xFFFFFFFF, 4),
        "\x95" + little(UINT64_MAX, 8), std::string("\x8a\xff"), std::string("\x8c\xff")})
    EXPECT_SAYS(refused("\x80\x04" + body + "abc"), "Corrupt: x.pt: is cut short");
  EXPECT_SAYS(refused(pickle("Nr" + little(0xFFFFFFF0, 4))), "remembers a value under 4294967280");
  EXPECT_SAYS(refused(pickle("j" + little(0xFFFFFFF0, 4))), "which it did not remember");
  EXPECT_SAYS(refused(pickle("\x8a\x09" + std::string(9, 'x'))), "a whole number of 9 bytes");
}

TEST(interop_pickle, stacks_that_do_not_add_up_are_refused) {
  for (const char* body :
       {"",  "NN", "a",  "Na",   "]a", "(",  "t", "e",    "]e",   "u",   "}Nu",  "\x85", "N\x86",
        "q", "R",  "NR", "\x81", "b",  "Nb", "Q", "}(Nu", "](e]", "(N.", "\x93", "s",    "}Ns"})
    EXPECT_NE(refused(pickle(body)), "") << body;
  EXPECT_SAYS(refused(pickle("N") + "N"), "bytes after its value");
  EXPECT_SAYS(refused(pickle(")N"
                             "a")),
              "adds to a tuple as if it were a list");
  EXPECT_SAYS(refused(pickle(dict(text("a") + "N" + text("a") + "N"))), "has the key 'a' twice");
  EXPECT_SAYS(refused(pickle(text("\xc3\x28"))), "no UTF-8");
}

TEST(interop_pickle, tensors_beyond_their_storage_are_refused) {
  const std::string six = storage("FloatStorage", "0", 6);
  EXPECT_EQ(refused(pickle(tensor(six, 0, whole(2) + whole(3), whole(3) + whole(1)))), "");
  EXPECT_EQ(refused(pickle(tensor(six, 5, "", ""))), "");
  EXPECT_EQ(refused(pickle(tensor(six, 0, whole(0) + whole(3), whole(3) + whole(1)))), "");
  const int32_t most = INT32_MAX;
  for (const std::string& bad :
       {tensor(six, 1, whole(2) + whole(3), whole(3) + whole(1)), tensor(six, 6, "", ""),
        tensor(six, -1, "", ""), tensor(six, 0, whole(6), whole(2)),
        tensor(six, 0, whole(2), whole(most)), tensor(six, most, whole(2), whole(most)),
        tensor(six, 0, whole(7), whole(0)), tensor(six, 0, whole(-1), whole(1)),
        tensor(six, 0, whole(1), whole(-1)), tensor(six, 0, whole(2), ""),
        tensor(six, 0, whole(most) + whole(most) + whole(most), whole(1) + whole(1) + whole(1)),
        tensor(six, 0, whole(0) + whole(most) + whole(most) + whole(most),
               whole(1) + whole(1) + whole(1) + whole(1)),
        tensor(
            six, 0,
            [] {
              std::string many;
              for (int i = 0; i < 65; ++i) many += whole(1);
              return many;
            }(),
            ""),
        tensor(text("0"), 0, whole(1), whole(1))})
    EXPECT_SAYS(refused(pickle(bad)), "Corrupt: x.pt: a tensor");
  EXPECT_SAYS(refused(pickle("](" + six + storage("LongStorage", "0", 6) + "e")),
              "is described in two ways");
  EXPECT_SAYS(refused(pickle(storage("ComplexFloatStorage", "0", 6))),
              "a dtype that we do not read");
  const std::string huge = "\x8a\x08" + little(INT64_MAX, 8);
  EXPECT_SAYS(refused(pickle(tuple(text("storage") + global("torch", "DoubleStorage") + text("0") +
                                   text("cpu") + huge) +
                             "Q")),
              "more than 2^64 bytes");
}

TEST(interop_pickle, a_tensor_of_an_untyped_storage_has_the_dtype_it_names) {
  const std::string bytes = tuple(text("storage") + global("torch.storage", "UntypedStorage") +
                                  text("0") + text("cpu") + whole(8)) +
                            "Q";
  const auto v3 = [&](const std::string& dtype) {
    return pickle(global("torch._utils", "_rebuild_tensor_v3") +
                  tuple(bytes + whole(0) + tuple(whole(2)) + tuple(whole(1)) + "\x89" +
                        global("collections", "OrderedDict") + ")R" + global("torch", dtype)) +
                  "R");
  };
  const Tree tree = read(v3("int32"));
  ASSERT_EQ(tree.arrays.size(), 1u);
  EXPECT_EQ(tree.arrays[0].dtype, "I32");
  EXPECT_SAYS(refused(v3("int64")), "its storage 1");
  EXPECT_SAYS(refused(v3("float8_e4m3fn")), "has dtype torch.float8_e4m3fn, which we do not read");
  EXPECT_SAYS(refused(pickle(tensor(bytes, 0, whole(2), whole(1)))), "a storage without a dtype");
}

TEST(interop_pickle, words_about_tensors_and_paths_are_text) {
  const Tree tree = read(
      pickle("](" + global("torch", "device") + tuple(text("cuda") + whole(1)) + "R" +
             global("pathlib", "PosixPath") + tuple(text("/") + text("a") + text("b")) + "R" +
             global("torch", "Size") + tuple(tuple(whole(2) + whole(3))) + "R" +
             global("collections", "Counter") + tuple(dict(whole(2) + whole(1))) + "R" +
             global("torch.jit._pickle", "build_intlist") + tuple("](" + whole(4) + "e") + "Re"));
  const auto& items = tree[tree.root].items;
  EXPECT_EQ(tree[items[0]].text, "cuda:1");
  EXPECT_EQ(tree[items[1]].text, "/a/b");
  EXPECT_EQ(tree[items[2]].items.size(), 2u);
  EXPECT_EQ(tree[items[3]].kind, Kind::dict);
  EXPECT_EQ(tree[items[4]].kind, Kind::list);
}

TEST(interop_pickle, what_is_written_reads_back_as_it_was) {
  Tree tree;
  tree.root = tree.ordered_dict();
  tree.set(tree.root, "w", tree.array("F32", {2, 3}));
  tree.set(tree.root, tree.integer(3),
           tree.tuple({tree.real(0.5), tree.none(), tree.boolean(true)}));
  tree.set(tree.root, "π",
           tree.list({tree.integer(-1), tree.integer(256), tree.integer(int64_t{1} << 40),
                      tree.integer(INT64_MIN)}));
  const Tree again = read(write_pickle(tree));
  EXPECT_EQ(again[again.root].integer, 1);  // an OrderedDict
  ASSERT_EQ(again.arrays.size(), 1u);
  EXPECT_EQ(again.arrays[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(again.storages[0].bytes, 24u);
  const Node& numbers = again[*again.find(again.root, "π")];
  EXPECT_EQ(again[numbers.items[1]].integer, 256);
  EXPECT_EQ(again[numbers.items[2]].integer, int64_t{1} << 40);
  EXPECT_EQ(again[numbers.items[3]].integer, INT64_MIN);
  EXPECT_EQ(write_pickle(again), write_pickle(tree));
}

TEST(interop_pickle, what_python_could_not_load_is_not_written) {
  Tree tree;
  tree.root = tree.add({.kind = Kind::bytes});
  EXPECT_SAYS(said([&] { write_pickle(tree); }),
              "UsageError: bytes cannot be written to a torch file");
  tree.root = tree.add({.kind = Kind::symbol, .text = "os.system"});
  EXPECT_SAYS(said([&] { write_pickle(tree); }), "os.system cannot be written");
  tree.root = tree.text("\xff");
  EXPECT_SAYS(said([&] { write_pickle(tree); }), "no UTF-8");
  EXPECT_SAYS(said([&] { tree.array("C64", {1}); }), "dtype 'C64'");
}

}  // namespace
}  // namespace trireme::interop::pickle_test
