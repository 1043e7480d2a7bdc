// The samplers that are rarely changed, with the texts of their sliders.
import type { Sampling } from './tree';

interface Sampler {
  name: Exclude<keyof Sampling, 'stop'>;
  label: string;
  hint: string;
  min: number;
  max: number;
  step: number;
  start: number;
}

export const moreSamplers: Sampler[] = [
  { name: 'presence_penalty', label: 'Presence penalty', hint: 'Above 0 avoids tokens that the answer already has.', min: -2, max: 2, step: 0.05, start: 0 },
  { name: 'frequency_penalty', label: 'Frequency penalty', hint: 'The same, for each time that it has them.', min: -2, max: 2, step: 0.05, start: 0 },
  { name: 'dry_multiplier', label: 'DRY', hint: 'Above 0 avoids repeating whole sequences of tokens.', min: 0, max: 2, step: 0.05, start: 0 },
  { name: 'dry_base', label: 'DRY base', hint: 'How fast DRY grows with the length of what would be repeated.', min: 1, max: 4, step: 0.05, start: 1.75 },
  { name: 'dry_allowed_length', label: 'DRY allowed length', hint: 'Repetitions of up to this many tokens are free.', min: 1, max: 20, step: 1, start: 2 },
  { name: 'xtc_probability', label: 'XTC', hint: 'How often the most likely tokens are left out.', min: 0, max: 1, step: 0.05, start: 0 },
  { name: 'xtc_threshold', label: 'XTC threshold', hint: 'Which tokens are likely: those with at least this probability.', min: 0, max: 0.5, step: 0.01, start: 0.1 },
  { name: 'typical_p', label: 'Typical p', hint: 'The most typical tokens that together have this probability.', min: 0.05, max: 1, step: 0.01, start: 1 },
  { name: 'top_n_sigma', label: 'Top n sigma', hint: 'Tokens within this many standard deviations of the best; 0 is all.', min: 0, max: 5, step: 0.1, start: 0 },
  { name: 'dynatemp_range', label: 'Dynatemp', hint: 'The temperature moves by up to this, up where the model is unsure.', min: 0, max: 2, step: 0.05, start: 0 },
  { name: 'mirostat', label: 'Mirostat', hint: 'Holds the surprise of the text instead of truncating; 0 is off, 2 the newer version.', min: 0, max: 2, step: 1, start: 0 },
  { name: 'mirostat_tau', label: 'Mirostat surprise', hint: 'In bits.', min: 0, max: 10, step: 0.1, start: 5 },
  { name: 'mirostat_eta', label: 'Mirostat rate', hint: 'How fast it gets there.', min: 0.01, max: 1, step: 0.01, start: 0.1 },
];
