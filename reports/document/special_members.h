#pragma once

// NOLINTBEGIN(bugprone-macro-parentheses): a type in a declaration can have none.

/// Declares the special members of a large struct. Otherwise each unit that copies or destroys one
/// would compile its own, 1 to 4 KB of code. NM_DEFINE_SPECIAL_MEMBERS defines them in one.
#define NM_DECLARE_SPECIAL_MEMBERS(Type) \
  Type();                                \
  Type(const Type&);                     \
  Type(Type&&) noexcept;                 \
  Type& operator=(const Type&);          \
  Type& operator=(Type&&) noexcept;      \
  ~Type()

#define NM_DEFINE_SPECIAL_MEMBERS(Type)             \
  Type::Type() = default;                           \
  Type::Type(const Type&) = default;                \
  Type::Type(Type&&) noexcept = default;            \
  Type& Type::operator=(const Type&) = default;     \
  Type& Type::operator=(Type&&) noexcept = default; \
  Type::~Type() = default
// NOLINTEND(bugprone-macro-parentheses)
