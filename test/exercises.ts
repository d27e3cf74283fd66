/**
 * What the exercises of the chapters show, beside the outputs that are quoted there:
 * patterns for the terminal (`screen`), for the logs, by lane, and for the exit code,
 * which is 0 where none is given.
 */
type Story = Record<string, RegExp | RegExp[]>

/** The terminal says that the edit shows, or does not say so. */
const NOTE = /on the model answers the recording, not your edit/
const NO_NOTE = /^(?![\s\S]*not your edit)/
const NO_LANE = /no such lane/
const NO_RESULT = /"status":400.*`tool_use` ids were found without `tool_result` blocks/
const NO_ERROR = /^(?![\s\S]*is_error)/
const LISTED = /"README\.md src test\.mjs /

export const STORIES: Record<string, Story> = {
  '01-no-results': {
    exit: /^1$/,
    screen: /^400 invalid_request_error: /m,
    parent: NO_RESULT,
  },
  '01-no-memory': {
    exit: /^1$/,
    screen: /^400 invalid_request_error: /m,
    parent: /unexpected `tool_use_id` found in `tool_result` blocks: tool_1/,
  },
  '02-no-edit': {
    screen: [NOTE, /both checks pass/],
    parent: [
      /No tool edit_file, only .*"is_error":true/,
      /"tool_5","content":"ok .*FAILED/,
    ],
  },
  '02-required': {
    parent: [
      /^(?![\s\S]*is_error[\s\S]*is_error)/,
      /read_file\.limit is missing.*"is_error":true/,
      /"tool_5","content":"ok - Hello, Ada!\\nok - Hello, world!/,
    ],
  },
  '03-reminder-first': {
    exit: /^1$/,
    parent: [NO_RESULT, /"user","content":\[{"type":"text","text":"Reminder/],
  },
  '03-every-round': { screen: NOTE, parent: /(Reminder[\s\S]*){5}/ },
  '04-cap': {
    screen: NOTE,
    parent: /stopped after 2 turns\. Its last words: none","is_error":true/,
    // Line 1, the prompt, and for each turn a call and its result.
    'sub-1': [/"max_turns":2}/, /^(.+\n){6}$/],
  },
  '04-one-array': {
    exit: /^1$/,
    parent: [
      /("api_error"[\s\S]*){2}/,
      /"tool_result","tool_use_id":"tool_1".*"is_error":true/,
    ],
    'sub-1': NO_LANE,
  },
  '04-transcript': { screen: NOTE, parent: /edit_file.*both checks pass/ },
  '05-no-list': {
    screen: NOTE,
    'sub-1': [NO_ERROR, /change nothing/, /Wrote \d+ bytes to NOTES\.md"}/],
  },
  '05-unknown-tool': {
    screen: /scout\.md: line 4: .*\bbash\b/,
    parent: [/No agent scout.*"is_error":true/, /Agents for task:\\nnone/],
    'sub-1': NO_LANE,
  },
  '06-open-end': { screen: NOTE, 'sub-1': LISTED },
  '06-parent-only': { screen: NOTE, 'sub-1': LISTED },
  '07-ctrl-c': {
    exit: /^130$/,
    screen: /✗ Stopped by Ctrl\+C\./,
    parent: /"Stopped by Ctrl\+C\.","is_error":true}]}\n$/,
    'sub-1': /"no_answer"}\n$/,
  },
  '07-no-reason': {
    screen: NOTE,
    parent: [/"tool_1".*"is_error":true/, /^(?![\s\S]*timed out)/],
  },
  '07-minimum': {
    parent: /timeoutMs must be at least 5000.*"is_error":true/,
    'sub-1': NO_LANE,
  },
  '08-no-flag': {
    screen: [NOTE, /^(?![\s\S]*✗)/],
    parent: /"content":"crashed: .*Its last words, no report/,
  },
  '08-cap': {
    screen: NOTE,
    parent:
      /capped at turn 1, .*Its closing answer, as asked:\\nlogin\(\).*"is_error":true/,
    'sub-1': [
      /"tool_result".*"text":"That was your last turn/,
      /"content":"Unknown: the run ended before/,
    ],
  },
  '09-clock': {
    screen: /from sub-1 1 on the model answers the recording/,
    parent: /sub-1 ran with another system: .*"is_error":true/,
  },
  '09-unknown-child': {
    parent: /no sub-7 in this run, only sub-1\..*"is_error":true/,
    'sub-2': NO_LANE,
  },
  '09-torn-line': { screen: NO_NOTE, parent: NO_ERROR, 'sub-1': /("outcome"[\s\S]*){2}/ },
  '10-one-at-a-time': { screen: NO_NOTE, 'sub-3': /"completed"/ },
  '10-one-fails': {
    screen: NOTE,
    parent:
      /"tool_2","content":"A bad day.*"is_error":true.*"tool_3","content":"completed/,
    'sub-1': NO_LANE,
  },
  '11-no-merge': {
    screen: NOTE,
    parent: [
      /on branch agent\/sub-3 is kept\. Changed: src\/config/,
      /Refused, not run.*"is_error":true/,
      /FAILED - five wrong passwords lock a user out/,
    ],
  },
  '11-own-step': {
    screen: NOTE,
    parent: /"tool_4","content":"Three children are enough.*"is_error":true/,
    'sub-4': NO_LANE,
  },
  '12-cut': {
    exit: /^1$/,
    screen: /sub-1 is not summed up: 400 invalid_request_error/,
    'sub-1': /^(?![\s\S]*"compacted")/,
    'sub-1.summary-1': NO_RESULT,
  },
  '12-no-event': {
    screen: [NO_NOTE, /sub-1\.summary-1 stands for 6 messages/],
    'sub-1': /^(?![\s\S]*"compacted")/,
  },
}
