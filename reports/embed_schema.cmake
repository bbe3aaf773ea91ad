# Writes OUTPUT, a source file that holds the text of INPUT.
file(READ ${INPUT} text)
file(WRITE ${OUTPUT} "#include \"reports/schema.h\"

namespace nearmetal {

std::string_view report_schema() {
  return R\"embedded(${text})embedded\";
}

}  // namespace nearmetal
")
