# Loaded by Ruby before Minitest: adds a reporter to those that it has, which writes `junit.xml` beside this file.
require 'cgi'

class PerdureReport
  def initialize
    @cases = []
  end

  def start; end

  def prerecord(_class, _name); end

  def passed?
    true
  end

  def record(result)
    group = result.respond_to?(:klass) ? result.klass : result.class.name
    place = result.respond_to?(:source_location) ? result.source_location : result.method(result.name).source_location
    kind = result.skipped? ? 'skipped' : result.error? ? 'error' : 'failure'
    text = escape(result.failures.map(&:message).join("\n"))
    body = result.failures.empty? ? '' : "<#{kind}>#{text}</#{kind}>"
    name = escape(result.name.sub(/\Atest_\d{4}_/, '')) # the number is the test's place in its file
    file = place.first.to_s.delete_prefix("#{Dir.pwd}/")
    @cases << "<testcase classname=\"#{escape(group)}\" name=\"#{name}\" file=\"#{escape(file)}\" time=\"#{result.time}\">#{body}</testcase>"
  end

  def report
    text = "<?xml version=\"1.0\"?>\n<testsuites>#{@cases.join("\n")}</testsuites>\n"
    File.write(File.join(__dir__, 'junit.xml'), text)
  end

  private

  def escape(text)
    CGI.escapeHTML(text.to_s.scrub[0, 20_000]).gsub("\n", '&#10;').gsub("\t", '&#9;')
  end
end

module Minitest
  singleton_class.prepend(Module.new do
    def init_plugins(options)
      super
      reporter << PerdureReport.new
    end
  end)
end
