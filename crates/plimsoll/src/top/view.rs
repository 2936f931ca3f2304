//! The selected part, and what the keys do. This module does not use the terminal.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// The parts of the screen, shown one at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    #[default]
    Groups,
    Procedures,
    Locks,
    Files,
    Resources,
    Lost,
}

impl Part {
    pub(super) const ALL: [Part; 6] =
        [Part::Groups, Part::Procedures, Part::Locks, Part::Files, Part::Resources, Part::Lost];

    pub(super) fn name(self) -> &'static str {
        match self {
            Part::Groups => "Groups",
            Part::Procedures => "Procedures",
            Part::Locks => "Locks",
            Part::Files => "Files",
            Part::Resources => "Resources",
            Part::Lost => "Lost",
        }
    }

    fn next(self, steps: usize) -> Part {
        let at = Part::ALL.iter().position(|part| *part == self).unwrap_or(0);
        Part::ALL[(at + steps) % Part::ALL.len()]
    }
}

/// The sort order of groups and procedures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// Share of the non-idle time.
    #[default]
    Share,
    /// What one more request costs.
    Marginal,
    Name,
}

impl Sort {
    pub(super) fn label(self) -> &'static str {
        match self {
            Sort::Share => "share",
            Sort::Marginal => "cost of one more",
            Sort::Name => "name",
        }
    }

    fn next(self) -> Sort {
        match self {
            Sort::Share => Sort::Marginal,
            Sort::Marginal => Sort::Name,
            Sort::Name => Sort::Share,
        }
    }
}

/// What is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) part: Part,
    pub(super) sort: Sort,
    /// Rows scrolled off at the top. The screen limits it.
    pub(super) above: usize,
    pub(super) paused: bool,
    pub(super) help: bool,
}

/// Rows that page up and page down scroll.
const PAGE: usize = 10;

impl View {
    /// Handles a key. Returns false if the key quits.
    pub(super) fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return true;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return false,
            KeyCode::Char('q') => return false,
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc => return false,
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Tab | KeyCode::Right => self.turn(self.part.next(1)),
            KeyCode::BackTab | KeyCode::Left => self.turn(self.part.next(Part::ALL.len() - 1)),
            KeyCode::Char(digit @ '1'..='6') => {
                self.turn(Part::ALL[digit as usize - '1' as usize]);
            }
            KeyCode::Char('s') => (self.sort, self.above) = (self.sort.next(), 0),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Down => self.above += 1,
            KeyCode::Up => self.above = self.above.saturating_sub(1),
            KeyCode::PageDown => self.above += PAGE,
            KeyCode::PageUp => self.above = self.above.saturating_sub(PAGE),
            KeyCode::Home => self.above = 0,
            _ => {}
        }
        true
    }

    fn turn(&mut self, part: Part) {
        (self.part, self.above, self.help) = (part, 0, false);
    }
}

/// The help on keys.
pub(super) const KEYS: [(&str, &str); 6] = [
    ("Tab, arrows, 1 to 6", "select another part"),
    ("up, down, PgUp, PgDn, Home", "scroll"),
    ("s", "sort by share, cost of one more, name"),
    ("p, space", "pause the screen; the recording continues"),
    ("?, h", "this help"),
    ("q, Esc, Ctrl-C", "quit; a recording started by top ends"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(keys: &[KeyCode]) -> View {
        let mut view = View::default();
        for key in keys {
            assert!(view.press(KeyEvent::from(*key)));
        }
        view
    }

    #[test]
    fn parts_wrap_around_in_both_directions() {
        let tabs = [KeyCode::Tab; 6];
        assert_eq!(pressed(&tabs[..5]).part, Part::Lost);
        assert_eq!(pressed(&tabs).part, Part::Groups);
        assert_eq!(pressed(&[KeyCode::Left]).part, Part::Lost);
        assert_eq!(pressed(&[KeyCode::Char('3')]).part, Part::Locks);
    }

    #[test]
    fn a_new_part_is_scrolled_to_its_top() {
        let down = pressed(&[KeyCode::Down, KeyCode::PageDown, KeyCode::Up]);
        assert_eq!(down.above, PAGE);
        assert_eq!(pressed(&[KeyCode::PageDown, KeyCode::Tab]).above, 0);
        assert_eq!(pressed(&[KeyCode::PageDown, KeyCode::Char('s')]).above, 0);
        assert_eq!(pressed(&[KeyCode::Up]).above, 0);
    }

    #[test]
    fn escape_closes_the_help_first() {
        assert!(!pressed(&[KeyCode::Char('?'), KeyCode::Esc]).help);
        assert!(!View::default().press(KeyEvent::from(KeyCode::Esc)));
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!View::default().press(control));
        assert!(View::default().press(KeyEvent::from(KeyCode::Char('c'))));
    }

    #[test]
    fn sort_orders_wrap_around_and_the_screen_pauses_and_resumes() {
        let sorted = |times: usize| pressed(&vec![KeyCode::Char('s'); times]).sort;
        assert_eq!(
            [0, 1, 2, 3].map(sorted),
            [Sort::Share, Sort::Marginal, Sort::Name, Sort::Share]
        );
        assert!(pressed(&[KeyCode::Char('p')]).paused);
        assert!(!pressed(&[KeyCode::Char('p'), KeyCode::Char(' ')]).paused);
    }
}
