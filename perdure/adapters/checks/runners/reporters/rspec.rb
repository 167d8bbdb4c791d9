# A formatter for RSpec, which writes JUnit to the file that `--out` names.
require 'cgi'

class PerdureReport
  RSpec::Core::Formatters.register self, :dump_summary

  def initialize(output)
    @output = output
  end

  def dump_summary(summary)
    cases = summary.examples.map { |example| testcase(example) }
    outside = summary.respond_to?(:errors_outside_of_examples_count) ? summary.errors_outside_of_examples_count : 0
    cases << '<testcase name="errors outside of examples"><error/></testcase>' if outside.positive?
    @output.write("<?xml version=\"1.0\"?>\n<testsuites>#{cases.join("\n")}</testsuites>\n")
    @output.flush
  end

  private

  def testcase(example)
    result, file = example.execution_result, example.metadata[:rerun_file_path] || example.metadata[:file_path]
    body = case result.status
           when :failed then "<failure>#{escape(result.exception && "#{result.exception.class}: #{result.exception.message}")}</failure>"
           when :pending then "<skipped/>"
           end
    name = escape(example.full_description)
    "<testcase name=\"#{name}\" file=\"#{escape(file.delete_prefix('./'))}\" time=\"#{result.run_time}\">#{body}</testcase>"
  end

  def escape(text)
    CGI.escapeHTML(text.to_s.scrub[0, 20_000]).gsub("\n", '&#10;').gsub("\t", '&#9;')
  end
end
