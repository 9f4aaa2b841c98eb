// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace trireme {

/// Where the sentences of an English text begin: bytes, the first 0. A rule, and no model like
/// NLTK's punkt, which the published recipe downloads: a sentence ends behind a word that ends with
/// . ! or ? (quotes and brackets may follow) and is no initial or common abbreviation, if the next
/// word does not begin with a small letter.
std::vector<uint32_t> sentence_begins(std::string_view text);

}  // namespace trireme
