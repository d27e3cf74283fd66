// The page's words. A label with {names} is filled in where it is drawn.

export const ENGLISH = {
  language: '中文',
  title: 'Two histories, side by side',
  lede:
    'A subagent is the same loop over another, empty messages array. Its calls and its ' +
    'mistakes stay there; only its last text comes back.',
  runs: 'Runs',
  open: 'Open or drop your own…',
  openHint:
    'Log files of a run, or a Claude Code session with its subagents folder. Transcripts ' +
    'can hold secrets; nothing leaves this page.',
  dropHere: 'Drop a run’s log files or its folder, or a Claude Code session',
  dropped: 'dropped',
  plot: 'Size of each request',
  axisX: 'moment of the run',
  axisY: { bytes: 'bytes', tokens: 'tokens' },
  plotLabel: '{lane}: {n} requests, {from} to {to}',
  asOne: 'computed: as one history',
  behind: 'compared with',
  nothing: 'nothing',
  now: {
    bytes: 'Now, in bytes:',
    tokens: 'Now, in tokens of the last request:',
  },
  kinds: ['system + tools', 'user messages', 'model’s turns', 'tool results'],
  bytes: '{n} bytes',
  tokens: '{n} tokens',
  message: ['{n} message', '{n} messages'],
  states: {
    unborn: 'not started',
    asks: 'asks the model next',
    runs: 'runs its tools',
    waits: 'waits for {who}',
    rests: 'waits for the user',
    ended: 'has ended',
  },
  moreLanes: ['{n} more lane: see the table', '{n} more lanes: see the table'],
  at: 'moment {m} of {n}',
  whole: 'Whole run: ',
  sumOne:
    'one history holds everything, {messages}. Each request sends all of it again: the ' +
    'largest is {largest}, all {n} together are {all}.',
  sumChild: [
    '{who} worked in a history of its own, {messages}. ',
    '{who} worked in histories of their own, {messages}. ',
  ],
  sumBack: ['Only one text, {back}, came back. ', 'Only {n} texts, {back}, came back. '],
  sumNone: 'Nothing came back. ',
  sumFailed: 'Not completed: {who}. ',
  sumAsOne:
    'The parent’s largest request is {largest}; as one history (computed) it would be ' +
    '{asOne}, {times} times as large. ',
  sumSame: 'The parent’s largest request is {largest}. ',
  sumTotal: 'In total, all requests are {all}.',
  sumMore: 'In total more: all requests are {all}, in {run} {before}.',
  sumLess: 'In total less: all requests are {all}, in {run} {before}.',
  sumCompacted: [
    '{n} older message was replaced by a summary.',
    '{n} older messages were replaced by summaries.',
  ],
  notes: {
    '04-subagent.false-summary':
      'Here the report was wrong: a report is a claim. The parent checked it and did the ' +
      'rest itself, so that work fills its own history after all.',
  },
  subagents: '{n} subagents',
  origin: 'Line 1 of the log: {mode}, model {model}.',
  session: 'A Claude Code session ({file}), model {model}. It can hold secrets.',
  byHand: 'Written by hand:',
  openAll: 'Unfold all messages',
  foldAll: 'Fold messages',
  tools: 'tools: {names}',
  noTools: 'no tools',
  cap: 'at most {n} turns',
  system: 'system prompt',
  resumed: 'resumed: what it had is still there',
  alone: 'Started by no task call that is seen here:',
  inner: { task: 'started by {who}', summary: 'sums up the history of {who}' },
  rail: 'The parent waits. Nothing is added here during the work of {who}.',
  railSummary: '{who} sums up the older messages in another array.',
  railAsync: '{who} works in the background; here it goes on.',
  leftOut: 'left out from here on: replaced by {lane} {n}',
  captions: {
    prompt: 'the prompt',
    task: 'the task’s prompt, nothing else',
    more: 'the next prompt',
    text: 'a text',
    calls: 'calls {what}',
    results: 'result of {what}',
    delegates: 'hands work to {what}',
    last: 'its last text: only this goes back',
    report: 'what came back from {what}',
    answer: 'the answer',
    summary: 'stands for {n} older messages',
    event: 'no message',
    broken: 'a broken line',
  },
  brokenLine: 'Line {n} is neither a message nor an event:',
  from: 'came back from {who}',
  notCompleted: 'not completed',
  error: 'error',
  thinking: 'thinking',
  more: 'Show all: {lines} lines, {n} bytes',
  less: 'Show less',
  empty: '(empty)',
  earlier: 'Show {n} of {all} earlier messages',
  events: {
    api_error: 'the API refused the request',
    bad_reply: 'a reply of no use',
    call_as_text: 'a tool call written as text: it was not run',
    compacted: 'older messages are summed up: the next message replaces them',
    empty_reply: 'a reply with nothing in it',
    no_connection: 'no connection',
    not_sent: 'the request was not sent',
    no_answer: 'no answer came',
  },
  jump: 'Jump to a call or a return',
  jumps: {
    task: '{m} · work goes to {who}',
    back: '{m} · {who} is back',
    failed: '{m} · {who} ✗ not completed',
    summary: '{m} · {who}: a summary is asked for',
    compacted: '{m} · older messages replaced by a summary',
  },
  search: 'Search the messages',
  found: '{i} of {n} found',
  notFound: 'not found',
  numbers: 'Whole run, in numbers',
  lane: 'lane',
  columns: {
    messages: 'messages',
    requests: 'requests',
    largest: 'largest request',
    all: 'all requests',
    failures: 'errors',
    tokensIn: 'tokens in',
    tokensOut: 'tokens out',
  },
  ended: 'ended with',
  ends: { report: 'its report', failed: 'no report', text: 'a text', open: 'no answer' },
  allLanes: 'all lanes',
  unit: {
    bytes:
      'A request’s size is bytes of JSON: system prompt, tools and all messages that it ' +
      'holds. As one history (computed) adds to each request of the parent all messages ' +
      'of the children that had come back by then.',
    tokens:
      'A request’s size is tokens as the API counted them: input and both cache counts. ' +
      'The files hold neither system prompt nor tools. As one history (computed) adds to ' +
      'each request what the contexts of the agents that had come back had grown by.',
  },
  share:
    'The parent sends {a} % of what the parent in {run} sends; all lanes together {b} %. ' +
    'A subagent makes the parent’s history smaller, not always the total.',
  about:
    'The runs that come with this page are written by hand and say so in line 1: the ' +
    'model’s turns are scripted, the tools’ results are real. Drop a run of your own on ' +
    'it, or a Claude Code session (<session>.jsonl and its folder, from ' +
    '~/.claude/projects). Transcripts can hold secrets: files stay on your machine, this ' +
    'page has no network.',
  keys: {
    step: 'back and forward',
    play: 'play or pause',
    jump: 'next and previous call or return',
    search: 'search',
  },
  space: 'Space',
  first: 'To the first message',
  back: 'One message back',
  play: 'Play',
  pause: 'Pause',
  forward: 'One message forward',
  last: 'To the last message',
  slider: 'Moment of the run',
  noMessages: 'This run holds no message.',
  notices: {
    opened: 'Opened {run}: {lanes}.',
    again: 'Opened {run} again: {lanes}.',
    empty: '{file} is empty: that is no log.',
    noHeader:
      '{file} is no log: its first line is not the header of a lane (a JSON object with ' +
      '“lane” and “tools”), and it is no Claude Code session.',
    noMessages: '{file} holds no message: that is no session.',
    tooLarge: '{file} is larger than 256 MB: too large for this page.',
    unreadable: '{file} cannot be read: {why}',
    cannotShow: '{file} cannot be shown: {why}',
    noFiles: 'There is no .log or .jsonl file in what was dropped.',
    tooMany: 'Only the first {n} files were read.',
    folder: '{file} cannot be read as a folder here ({why}). Drop the files in it.',
    broken: 'Broken lines in {file}: {n}. They are shown as what they are.',
    unknown: 'There is no run “{run}” here. If it was a dropped one, drop it again.',
  },
}
