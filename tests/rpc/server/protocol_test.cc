// SPDX-License-Identifier: Apache-2.0
// What servers and workers of different builds compare before they call each other.
#include "trireme/rpc/server/protocol.h"

#include <gtest/gtest.h>

#include <string>

#include "trireme/rpc/server/methods.h"

namespace trireme::rpc::server {

TEST(rpc_server_protocol, calls_have_the_types_that_they_always_had) {
  const std::string standing = "<u64,bool,[i64],[i32]>", decision = "<u64,bool,i64,[i32]>",
                    wanted = "<i32,u64,i64>", text = "str";
  const auto is = [](const char* name, const std::string& signature, const std::string& wanted_name,
                     const std::string& wanted_signature) {
    EXPECT_EQ(name, "trireme.server." + wanted_name);
    EXPECT_EQ(signature, wanted_signature) << wanted_name << ": give what changes a new name";
  };
#define TRIREME_EXPECT_CALL(M, name, signature) \
  is(M::kName, rpc::detail::signature_of<M>(), name, signature)
  TRIREME_EXPECT_CALL(JoinCall, "join",
                      "<" + standing +
                          ",bool,i64>(<i32,i32,i32,[<str,i32,[i64],bool>],"
                          "[<str,i64,i64,i32,f64,u64>],[tensor]>)");
  TRIREME_EXPECT_CALL(AttendCall, "attend", "void(<i32,i64>)");
  TRIREME_EXPECT_CALL(LeaveCall, "leave", "void(i32)");
  TRIREME_EXPECT_CALL(DecideCall, "decide", decision + "(<i32,u64,[str],[" + standing + "]>)");
  TRIREME_EXPECT_CALL(BeginCall, "begin", "u8(<i32," + decision + ">)");
  TRIREME_EXPECT_CALL(PushCall, "push",
                      "u8(<i32,u64,i64,i64,f64,i64,[u32],[tensor],[u32],[tensor],[tensor]>)");
  TRIREME_EXPECT_CALL(PullCall, "pull", "<u8,[tensor]>(" + wanted + ")");
  TRIREME_EXPECT_CALL(LookUpCall, "look_up", "<u8,tensor>(<" + wanted + ",u32,tensor>)");
  TRIREME_EXPECT_CALL(WaitedForCall, "waited_for", "[str](i64)");
#undef TRIREME_EXPECT_CALL
}

}  // namespace trireme::rpc::server
