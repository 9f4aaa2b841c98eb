// SPDX-License-Identifier: Apache-2.0
// Who trains together while workers end and others are started in their place.
#include "trireme/launch/membership/places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/error.h"

namespace trireme::launch::places_test {
namespace {

using Ids = std::vector<int64_t>;

TEST(launch_places, those_that_are_left_train_until_a_new_one_is_ready) {
  Places places(4);
  EXPECT_EQ(places.generation().members, (Ids{0, 1, 2, 3}));
  EXPECT_FALSE(places.next()) << "nothing has changed";
  EXPECT_EQ(places.lost(1), 5);
  auto next = places.next();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->number, 1);
  EXPECT_EQ(next->members, (Ids{0, 2, 3}));
  EXPECT_EQ(next->broken, 0);
  EXPECT_FALSE(places.next()) << "the new one is not ready";
  EXPECT_EQ(places.awaited(), std::vector<int>{1});
  places.ready(1);
  next = places.next();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->number, 2);
  EXPECT_EQ(next->members, (Ids{0, 5, 2, 3})) << "it has the rank of the one that was there";
  EXPECT_EQ(next->broken, 0) << "generation 1 has lost nobody: it ends between two steps";
  EXPECT_TRUE(places.awaited().empty());
}

TEST(launch_places, a_new_one_that_ends_before_it_is_ready_breaks_no_generation) {
  Places places(2);
  places.lost(0);
  ASSERT_TRUE(places.next());
  EXPECT_EQ(places.lost(0), 4);
  EXPECT_FALSE(places.next());
  places.ready(0);
  EXPECT_EQ(places.next()->members, (Ids{4, 1})) << "all are there";
}

TEST(launch_places, where_not_all_are_there_those_that_have_trained_come_first) {
  Places places(4);
  for (const int place : {0, 1, 3}) places.lost(place);
  EXPECT_EQ(places.next()->members, Ids{2});
  places.ready(1);
  EXPECT_EQ(places.next()->members, (Ids{2, 5}));
  places.ready(0);
  EXPECT_EQ(places.next()->members, (Ids{2, 5, 4})) << "who came first is before who came later";
  places.ready(3);
  EXPECT_EQ(places.next()->members, (Ids{4, 5, 2, 7})) << "all are there";
  places.lost(1);
  EXPECT_EQ(places.next()->members, (Ids{4, 2, 7}));
}

TEST(launch_places, several_losses_are_one_generation) {
  Places places(3);
  places.lost(0);
  places.lost(2);
  const auto next = places.next();
  EXPECT_EQ(next->number, 1);
  EXPECT_EQ(next->members, Ids{1});
  places.lost(1);
  EXPECT_FALSE(places.next()) << "nobody is left";
}

TEST(launch_places, in_any_history_numbers_grow_and_workers_are_unique) {
  std::mt19937 random(7);
  for (int history = 0; history < 300; ++history) {
    const int count = 1 + static_cast<int>(random() % 6);
    Places places(count);
    int64_t number = 0, broken = -1;
    for (int event = 0; event < 60; ++event) {
      const int place = static_cast<int>(random() % static_cast<unsigned>(count));
      const auto before = places.generation().members;
      const int64_t id = places.member_at(place);
      const bool was_in = std::find(before.begin(), before.end(), id) != before.end();
      const bool loses = random() % 2 == 0;
      loses ? static_cast<void>(places.lost(place)) : places.ready(place);
      const auto next = places.next();
      ASSERT_EQ(Places::read(places.text(), count).text(), places.text());
      if (!next) continue;
      ASSERT_EQ(next->number, ++number);
      ASSERT_GE(next->broken, broken);
      if (loses && was_in) {
        ASSERT_EQ(next->broken, number - 1);
      }
      broken = next->broken;
      ASSERT_FALSE(next->members.empty());
      ASSERT_EQ(std::set<int64_t>(next->members.begin(), next->members.end()).size(),
                next->members.size());
      if (loses) {
        ASSERT_EQ(std::find(next->members.begin(), next->members.end(), id), next->members.end());
      }
    }
  }
}

/// What one launcher of several sees happen to its workers, in this order.
struct Event {
  int place = 0;
  bool loses = true;  // else the new one is ready
};
using Script = std::vector<Event>;

/// All scripts of so many events of these places.
std::vector<Script> scripts(const std::vector<int>& places, int events) {
  std::vector<Script> all{{}};
  for (int i = 0; i < events; ++i) {
    std::vector<Script> longer;
    for (const Script& script : all)
      for (const int place : places) {
        bool waits = false;
        for (const Event& event : script)
          if (event.place == place) waits = event.loses;
        for (const bool loses : {true, false}) {
          if (!loses && !waits) continue;
          longer.push_back(script);
          longer.back().push_back({place, loses});
        }
      }
    all = std::move(longer);
  }
  return all;
}

/// Launchers that change one text by compare and set, in every order of their reads and writes.
struct Launchers {
  struct One {
    Script script;
    size_t done = 0;
    std::optional<std::string> read{};
  };
  std::vector<One> launchers;
  std::string text{};
  std::set<int64_t> gone{}, broken{};
  int64_t number = 0;
  int losses = 0, orders = 0;
  static constexpr int kPlaces = 3;

  static Places read(const std::string& text) {
    return text.empty() ? Places(kPlaces) : Places::read(text, kPlaces);
  }
  void write(One& one) {
    const Event event = one.script[one.done];
    const std::string before = *std::exchange(one.read, std::nullopt);
    Places places = read(before);
    const Ids members = places.generation().members;
    const int64_t id = places.member_at(event.place);
    const int64_t was = places.generation().number;
    event.loses ? static_cast<void>(places.lost(event.place)) : places.ready(event.place);
    places.next();
    if (text != before) return;  // another was quicker: once more
    text = places.text();
    ++one.done;
    if (event.loses) {
      ++losses;
      gone.insert(id);
      if (std::find(members.begin(), members.end(), id) != members.end()) broken.insert(was);
    }
    expect(read(text));
  }
  void expect(const Places& places) {
    const trireme::Generation& now = places.generation();
    ASSERT_GE(now.number, number);
    ASSERT_LE(now.number, number + 1) << "no generation is passed over, nor there twice";
    number = now.number;
    ASSERT_EQ(places.losses(), losses);
    ASSERT_EQ(std::set<int64_t>(now.members.begin(), now.members.end()).size(), now.members.size());
    std::set<int64_t> ids;
    for (int place = 0; place < kPlaces; ++place) ids.insert(places.member_at(place));
    ASSERT_EQ(ids.size(), static_cast<size_t>(kPlaces));
    for (const int64_t id : ids) ASSERT_EQ(gone.count(id), 0u);
    for (const int64_t n : broken)
      if (n < now.number) {
        ASSERT_GE(now.broken, n) << "those that wait for a lost one are woken";
      }
    if (broken.count(now.number)) return;  // nobody is left for another one
    for (const int64_t id : now.members) ASSERT_EQ(gone.count(id), 0u);
  }
  void all_orders() {
    bool any = false;
    for (size_t i = 0; i < launchers.size(); ++i) {
      if (launchers[i].done == launchers[i].script.size()) continue;
      any = true;
      Launchers then = *this;
      One& one = then.launchers[i];
      if (one.read)
        then.write(one);
      else
        one.read = then.text;
      then.orders = 0;
      then.all_orders();
      orders += then.orders;
      if (::testing::Test::HasFatalFailure()) return;
    }
    if (any) return;
    ++orders;
    const Places end = read(text);
    Ids waiting;
    for (const int place : end.awaited()) waiting.push_back(end.member_at(place));
    // Who is ready trains, unless nobody is.
    if (waiting.size() < static_cast<size_t>(kPlaces)) {
      ASSERT_EQ(end.generation().members.size() + waiting.size(), static_cast<size_t>(kPlaces));
    }
  }
};

TEST(launch_places, several_launchers_agree_in_whatever_order_they_read_and_write) {
  int orders = 0;
  for (const Script& first : scripts({0, 1}, 2))
    for (const Script& second : scripts({2}, 2)) {
      Launchers all{{{first}, {second}}};
      all.all_orders();
      ASSERT_FALSE(HasFatalFailure());
      orders += all.orders;
    }
  EXPECT_GT(orders, 1000);
}

TEST(launch_places, a_text_that_is_not_of_these_places_is_refused) {
  Places places(3);
  places.lost(1);
  places.next();
  const Places same = Places::read(places.text(), 3);
  EXPECT_EQ(same.text(), places.text());
  EXPECT_EQ(same.losses(), 1);
  EXPECT_TRUE(same.is_new(1));
  EXPECT_FALSE(same.is_new(0));
  EXPECT_THROW(Places::read(places.text(), 2), Corrupt);
  EXPECT_THROW(Places::read("", 3), Corrupt);
  EXPECT_THROW(Places::read(places.text().substr(0, 40), 3), Corrupt);
}

struct WrittenPlace {
  int64_t id = 0;
  bool in = true, ready = true;
  TRIREME_FIELDS(id, in, ready)
};
struct WrittenPlaces {
  std::vector<WrittenPlace> places;
  bool lost_one = false;
  int losses = 0;
  TRIREME_FIELDS(places, lost_one, losses)
};

TEST(launch_places, numbers_that_no_launcher_has_given_are_refused) {
  const WrittenPlaces known{{{0, true, true}, {4, false, false}, {2, true, true}}, false, 1};
  const auto text = [](int64_t number, const Ids& members, int64_t broken,
                       const WrittenPlaces& of) {
    return encode(trireme::Generation{number, members, broken, encode(of)});
  };
  ASSERT_NO_THROW(Places::read(text(1, {0, 2}, 0, known), 3));
  const auto with = [&](const WrittenPlace& second, int losses) {
    WrittenPlaces changed = known;
    changed.places[1] = second;
    changed.losses = losses;
    return text(1, {0, 2}, 0, changed);
  };
  for (const std::string& bad :
       {text(-1, {0, 2}, 0, known), text(3, {0, 2}, 0, known), text(1, {}, 0, known),
        text(1, {0, 0}, 0, known), text(1, {0, 7}, 0, known), text(1, {-3, 2}, 0, known),
        text(1, {0, 1, 2, 4}, 0, known), text(1, {0, 2}, 2, known), text(1, {0, 2}, -2, known),
        with({5, false, false}, 1), with({-2, false, false}, 1), with({4, true, false}, 1),
        with({4, false, false}, 2), with({INT64_MAX - 1 - INT64_MAX % 3, false, false}, 1),
        with({4, false, false}, -1)})
    EXPECT_THROW(Places::read(bad, 3), Corrupt);
}

}  // namespace
}  // namespace trireme::launch::places_test
