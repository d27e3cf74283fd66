/** Calls that a model wrote as text instead of making them. */

/**
 * The forms in which a call of one of the tools is known to be written. Names of tools
 * need no escaping: the API allows letters, digits, `_` and `-`.
 */
function callOf(names: string): RegExp {
  const name = `(?:functions\\.)?(${names})(?![\\w-])`
  const key = (keys: string) => `["'](?:${keys})["']\\s*:\\s*`
  const named = `${key('name|tool|tool_name|function')}["']${name}["']\\s*`
  const input = `${key('arguments|parameters|input')}["']?\\{`
  const between = `(?:,\\s*["'](?!description)\\w+["']\\s*:[^,{}]*)*,\\s*`
  // <tool_call>bash, <|tool_call>call:bash, <|tool_call_begin|>functions.bash:0 and
  // <｜tool▁call▁begin｜>function<｜tool▁sep｜>bash
  const call = 'tool[_▁]call(?:[_▁]begin)?[|｜]?>\\s*(?:call:|function<｜tool▁sep｜>)?'
  const marks = `<function=["']?|invoke name=["']|<(?:tool_)?name>\\s*|${call}`
  const forms = [
    `${named}${between}${input}`,
    `${input}[^]{0,2000}?\\}["']?\\s*,\\s*${named}[,}]`,
    `(?:${marks}|\\[TOOL_CALLS\\]\\s*|<\\|python_tag\\|>\\s*|\\bto=(?=functions))${name}`,
  ]
  return new RegExp(forms.join('|'))
}

/**
 * The name of the first tool of which `text` holds what looks like a call. It may be
 * wrong: a right answer may quote a call.
 */
export function writtenCall(text: string, tools: { name: string }[]): string | undefined {
  if (text === '' || tools.length === 0) return undefined
  const found = callOf(tools.map(({ name }) => name).join('|')).exec(text)
  return found?.slice(1).find(Boolean)
}

/** A note for the model that reads `text` as a report; empty if no call is seen in it. */
export function noteOnCalls(text: string, tools: { name: string }[]): string {
  const name = writtenCall(text, tools)
  if (!name) return ''
  return (
    `\n\n(Note: this text holds what looks like a call of ${name}, written as text.` +
    ' Such a call was not run.)'
  )
}
