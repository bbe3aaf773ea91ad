# Writes OUTPUT, the source of build_info(), with the commit of SOURCE_DIR at this moment. Called at
# every build; the file changes only when its content does.
find_package(Git QUIET)
set(commit "Unknown{\"not built from a git checkout\"}")
set(dirty "${commit}")
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE_DIR} rev-parse --verify HEAD
    OUTPUT_VARIABLE id OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE_DIR} status --porcelain
      --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
    set(commit "std::string(\"${id}\")")
    set(dirty "false")
    if(changes)
      set(dirty "true")
    endif()
  endif()
endif()

file(WRITE ${OUTPUT}.new "#include \"bench/cli/process.h\"

namespace nearmetal {

Tool build_info() {
  return {.version = \"${VERSION}\",
          .git_commit = ${commit},
          .dirty = ${dirty},
          .build_type = \"${BUILD_TYPE}\",
          .compiler = \"${COMPILER}\",
          .build_id = own_build_id()};
}

}  // namespace nearmetal
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
