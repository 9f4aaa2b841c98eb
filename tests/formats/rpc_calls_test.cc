// SPDX-License-Identifier: Apache-2.0
// What workers say to each other of references, actors, backwards and parameters, as it was when it
// landed. rpc-calls-v1.bin was written by another program (rpc_calls_v1.py): values, each after its
// name and its length.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/encoding.h"
#include "trireme/base/file.h"
#include "trireme/rpc/actor/host.h"
#include "trireme/rpc/actor/message.h"
#include "trireme/rpc/autograd/contexts.h"
#include "trireme/rpc/object/messages.h"
#include "trireme/rpc/server/methods.h"

namespace rpc_calls_format_test {
namespace {

using namespace trireme;
using namespace trireme::rpc;

std::string taken(const std::string& from, size_t& at) {
  uint32_t length = 0;
  std::memcpy(&length, from.data() + at, sizeof length);
  at += sizeof length + length;
  return from.substr(at - length, length);
}

class formats_rpc_calls : public ::testing::Test {
 protected:
  formats_rpc_calls() {
    const std::string all =
        read_file(trireme::testing::source_path("/tests/formats/rpc-calls-v1.bin"));
    for (size_t at = 0; at < all.size();) {
      const std::string name = taken(all, at);
      values_[name] = taken(all, at);
    }
  }
  const std::string& bytes(const std::string& name) { return values_.at(name); }
  /// The values are written as these bytes, and read as values that are written so.
  template <class... T>
  void is(const std::string& name, const T&... values) {
    encoding::Writer writer;
    (writer.put(values), ...);
    EXPECT_EQ(writer.take(), bytes(name)) << name;
    std::tuple<T...> read;
    encoding::Reader reader(bytes(name));
    reader.get(read);
    EXPECT_TRUE(reader.done()) << name;
    encoding::Writer again;
    again.put(read);
    EXPECT_EQ(again.take(), bytes(name)) << name;
  }
  template <class M>
  std::string result_of() {
    return std::string(M::kName) + "'s result";
  }

  std::map<std::string, std::string> values_;
};

at::Tensor floats(std::vector<float> values) { return at::tensor(values); }

}  // namespace

TEST_F(formats_rpc_calls, of_references_are_read_and_written_as_another_program_does) {
  using namespace rpc::detail;
  const ObjectId object{3, 2, 5};
  encoding::Writer writer;
  put_reference(writer, {object, 9, "server0", "table.cc:12"});
  EXPECT_EQ(writer.take(), bytes("rref"));
  encoding::Reader reader(bytes("rref"));
  const auto passed = get_reference(reader);
  ASSERT_TRUE(passed && reader.done());
  EXPECT_EQ(passed->object, object);
  EXPECT_EQ(passed->token, 9u);
  EXPECT_EQ(passed->owner, "server0");
  EXPECT_EQ(passed->where, "table.cc:12");
  is("rref to nothing", ObjectId());
  encoding::Reader empty(bytes("rref to nothing"));
  EXPECT_FALSE(get_reference(empty).has_value());
  is("new", MakerHead{object, 7, "table.cc:12"}, int64_t{100});
  is(kMakeByFunction, MakerHead{{3, 2, 6}, 8, "table.cc:14"}, std::string("sum"),
     std::string("f64([f64])"), std::vector<double>{0.5, -2});
  is(ClaimObject::kName, object, uint64_t{7});
  is(ReleaseObject::kName, object, uint64_t{7});
  is(SettleReference::kName, uint64_t{9});
  is(WithdrawReferences::kName, std::vector<uint64_t>{9, 10}, true);
  is(result_of<WithdrawReferences>(), std::vector<uint64_t>{10});
  is(kFetch, ObjectId{3, 2, 6}, std::string("f64"));
}

TEST_F(formats_rpc_calls, of_actors_are_read_and_written_as_another_program_does) {
  using namespace rpc::detail;
  constexpr uint64_t actor = uint64_t{1} << 63;
  is("actor",
     SpawnHead{.actor = actor,
               .group = "sims",
               .rank = 1,
               .size = 4,
               .restarts = 2,
               .on_error = OnError::restart,
               .most_restarts = 3,
               .within_ns = 60'000'000'000},
     9.8);
  is("actor's message", MessageHead{actor, 17, false}, int64_t{100});
}

TEST_F(formats_rpc_calls, of_a_backward_are_read_and_written_as_another_program_does) {
  using namespace rpc::autograd;
  const ContextId context{2, 1};
  const Pair answer{2, 4, true}, arguments{2, 4, false};
  is(LookBehind::kName, context, uint64_t{1}, false, std::vector<Pair>{answer});
  is(result_of<LookBehind>(), std::vector<Found>{{{{arguments, "trainer0", 2}}, {0, 1}}});
  is(RunPasses::kName, context, uint64_t{1}, BackwardKind{true, false},
     std::vector<PassOrder>{{false, true, {answer}, {arguments}, {{arguments}}}});
  is(GradientsCame::kName, context, uint64_t{1}, answer,
     std::vector<at::Tensor>{floats({0.5, -2})});
  is(GiveUp::kName, context, uint64_t{1}, std::string("a worker is gone"));
  is(ContextEnded::kName, context);
}

TEST_F(formats_rpc_calls, of_parameters_are_read_and_written_as_another_program_does) {
  using namespace rpc::server;
  constexpr int kFloat = static_cast<int>(at::kFloat);
  is(JoinCall::kName, Join{0,
                           1,
                           2,
                           {{"a.weight", kFloat, {2}, true}, {"b", kFloat, {3}, false}},
                           {{"items", 10, 2, kFloat, 0.25, 11}},
                           {floats({0.5, -2}), floats({1, 2, 3})}});
  is(result_of<JoinCall>(), Joined{});
  is(AttendCall::kName, Attend{1, -1});
  is(LeaveCall::kName, int32_t{1});
  is(DecideCall::kName,
     Ask{0, 0, {"server0", "server1"}, {{1, false, {4, 8}, {1}}, {1, false, {8}, {}}}});
  is(result_of<DecideCall>(), rpc::plan::Decision{2, false, 8, {1}});
  is(BeginCall::kName, Begin{0, {1, true, 0, {}}});
  is(PushCall::kName, Push{0,
                           1,
                           0,
                           0,
                           0.1,
                           1,
                           {0},
                           {floats({0.25, -1})},
                           {0},
                           {at::tensor({int64_t{0}, int64_t{3}})},
                           {floats({1, 2, 3, 4}).view({2, 2})}});
  is(PullCall::kName, Wanted{0, 1, 1});
  is(result_of<PullCall>(), Weights{Answer::done, {floats({1, 2})}});
  is(LookUpCall::kName, Lookup{{0, 1, 1}, 0, at::tensor({int64_t{0}, int64_t{3}})});
  is(result_of<LookUpCall>(), Rows{Answer::over, {}});
  is(WaitedForCall::kName, int64_t{3});
}

TEST_F(formats_rpc_calls, of_each_kind_have_a_name_that_does_not_change) {
  std::set<std::string> names{
      rpc::detail::ClaimObject::kName,     rpc::detail::ReleaseObject::kName,
      rpc::detail::SettleReference::kName, rpc::detail::WithdrawReferences::kName,
      rpc::detail::kMakeByFunction,        rpc::detail::kFetch,
      rpc::autograd::LookBehind::kName,    rpc::autograd::RunPasses::kName,
      rpc::autograd::GradientsCame::kName, rpc::autograd::GiveUp::kName,
      rpc::autograd::ContextEnded::kName};
  for (const char* call :
       {"join", "attend", "leave", "decide", "begin", "push", "pull", "look_up", "waited_for"})
    names.insert(std::string("trireme.server.") + call);
  std::set<std::string> written;
  for (const auto& [name, value] : values_)
    if (name.starts_with("trireme.") && !name.ends_with("'s result")) written.insert(name);
  EXPECT_EQ(names, written);
}

}  // namespace rpc_calls_format_test
