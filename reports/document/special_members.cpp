#include "reports/document/special_members.h"

#include "reports/document/types.h"

namespace nearmetal {

NM_DEFINE_SPECIAL_MEMBERS(Communication);
NM_DEFINE_SPECIAL_MEMBERS(Environment);
NM_DEFINE_SPECIAL_MEMBERS(Gpu);
NM_DEFINE_SPECIAL_MEMBERS(Rank);
NM_DEFINE_SPECIAL_MEMBERS(RdmaDevice);
NM_DEFINE_SPECIAL_MEMBERS(Report);
NM_DEFINE_SPECIAL_MEMBERS(Run);
NM_DEFINE_SPECIAL_MEMBERS(RunConfig);
NM_DEFINE_SPECIAL_MEMBERS(Virtualisation);
}  // namespace nearmetal
