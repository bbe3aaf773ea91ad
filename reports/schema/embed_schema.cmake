# Writes OUTPUT, a source file with a function NAME_schema() that holds the text of INPUT.
file(READ ${INPUT} text)
file(WRITE ${OUTPUT} "#include \"reports/json/schema.h\"

namespace nearmetal {

std::string_view ${NAME}_schema() {
  return R\"embedded(${text})embedded\";
}

}  // namespace nearmetal
")
